#!/bin/sh
# Serves as the model: one call of the server's tool, then an answer from its result.
set -eu
request=$(cat)
case $request in
*'"role":"tool"'*)
    day=$(printf '%s\n' "$request" | sed 's/.*"role":"tool"//; s/.*"content":"\([A-Z][a-z]*\).*/\1/')
    printf '{"model":"model.sh","choices":[{"finish_reason":"stop","message":{"role":"assistant",'
    printf '"content":"It was a %s."}}],"usage":{"prompt_tokens":90,"completion_tokens":8,"total_tokens":98}}\n' "$day"
    ;;
*)
    printf '{"model":"model.sh","choices":[{"finish_reason":"tool_calls","message":{"role":"assistant",'
    printf '"content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"calendar_weekday",'
    printf '"arguments":"{\\"dates\\":[\\"1969-07-20\\"]}"}}]}}],'
    printf '"usage":{"prompt_tokens":70,"completion_tokens":12,"total_tokens":82}}\n'
    ;;
esac
