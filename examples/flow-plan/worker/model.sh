#!/bin/sh
set -eu
# Serves as the worker's model: first writes a file, then answers with its name.
request=$(cat)
for part in beginning middle end; do
    case $request in *'```json\n\"'$part'\"\n```'*) break ;; esac
done

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
*'"role":"tool"'*) answer "{\\\"file\\\":\\\"$part.txt\\\"}" ;;
*) call write_file "{\\\"filename\\\":\\\"$part.txt\\\",\\\"content\\\":\\\"This is the $part.\\\\n\\\"}" ;;
esac
