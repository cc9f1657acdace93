#!/bin/sh
set -eu
# Serves as the clerk's model: asks a human, and returns the answer.
request=$(cat)

answer() { # TEXT
    printf '{"model":"model.sh","choices":[{"finish_reason":"stop","message":{"role":"assistant",'
    printf '"content":"%s"}}]}\n' "$1"
}

call() { # NAME ARGUMENTS
    printf '{"model":"model.sh","choices":[{"finish_reason":"tool_calls","message":{"role":"assistant",'
    printf '"content":"","tool_calls":[{"id":"call_1","type":"function",'
    printf '"function":{"name":"%s","arguments":"%s"}}]}}]}\n' "$1" "$2"
}

case $request in
*'"role":"tool"'*'"content":"y'*) answer '\"yes\"' ;;
*'"role":"tool"'*) answer '\"no\"' ;;
*) call ask_human '{\"prompt\":\"May letter.txt be sent?\",\"input_type\":\"confirmation\"}' ;;
esac
