#!/bin/sh
# Plays the model: how far the work has come is told by the number of results in the request.
set -eu
request=$(cat)
results=$(printf '%s' "$request" | grep -o '"role":"tool"' | wc -l)
# The session's id stands in the first result, as JSON in a JSON string.
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
1) step 'mkdir -p notes && cd notes && GREETING=hello' 'I make a directory and go there.' ;;
2) step 'echo \\\"$GREETING from ${PWD##*/}\\\" | tee greeting.txt' 'The shell still knows both.' ;;
3) call session_end "{\\\"session_id\\\":\\\"$session\\\"}" 'That was all.' ;;
*)
    printf '{"model":"model.sh","choices":[{"finish_reason":"stop","message":{"role":"assistant",'
    printf '"content":"I wrote notes/greeting.txt from a shell that remembered where it was."}}]}\n'
    ;;
esac
