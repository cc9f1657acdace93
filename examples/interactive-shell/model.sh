#!/bin/sh
# Serves as the model: the number of results in the request determines the next answer.
set -eu
request=$(cat)
results=$(printf '%s' "$request" | grep -o '"role":"tool"' | wc -l)
# The first result contains the session id, as JSON within a JSON string.
session=$(printf '%s' "$request" | grep -o 'sess_[0-9a-z]*' | head -n 1)

call() { # NAME ARGUMENTS TEXT
    printf '{"model":"model.sh","choices":[{"finish_reason":"tool_calls","message":{"role":"assistant",'
    printf '"content":"%s","tool_calls":[{"id":"call_%s","type":"function",' "$3" "$results"
    printf '"function":{"name":"%s","arguments":"%s"}}]}}]}\n' "$1" "$2"
}

step() { # COMMAND TEXT
    call session_exec "{\\\"session_id\\\":\\\"$session\\\",\\\"command\\\":\\\"$1\\\"}" "$2"
}

# shellcheck disable=SC2016 # the session's shell expands it
case $results in
0) call session_start '{}' 'I start a shell.' ;;
1) step 'mkdir -p notes && cd notes && GREETING=hello' 'I create a directory and change to it.' ;;
2) step 'echo \\\"$GREETING from ${PWD##*/}\\\" | tee greeting.txt' 'The shell has kept both.' ;;
3) call session_end "{\\\"session_id\\\":\\\"$session\\\"}" 'That was all.' ;;
*)
    printf '{"model":"model.sh","choices":[{"finish_reason":"stop","message":{"role":"assistant",'
    printf '"content":"I wrote notes/greeting.txt from a shell that kept its directory."}}]}\n'
    ;;
esac
