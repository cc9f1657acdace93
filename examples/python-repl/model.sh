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
    call python_exec "{\\\"session_id\\\":\\\"$session\\\",\\\"program\\\":\\\"$1\\\"}" "$2"
}

case $results in
0) call python_start '{}' 'I start Python.' ;;
1) step 'import json; json.dump([n*n for n in range(10)], open(\\\"squares.json\\\", \\\"w\\\"))' 'I calculate and store the result in a file.' ;;
2) step 'import json; print(sum(json.load(open(\\\"squares.json\\\"))))' 'I read it again and add it up.' ;;
3) call python_end "{\\\"session_id\\\":\\\"$session\\\"}" 'That was all.' ;;
*)
    printf '{"model":"model.sh","choices":[{"finish_reason":"stop","message":{"role":"assistant",'
    printf '"content":"The first ten squares add up to 285."}}]}\n'
    ;;
esac
