#!/bin/sh
# Plays the model: a chat-completions request on stdin, a response on stdout. How far the work has
# come is told by the number of results in the request.
results=$(grep -o '"role": *"tool"' | wc -l)

call() { # COMMAND, as it stands in a JSON string in a JSON string
    printf '{"model":"model.sh","choices":[{"finish_reason":"tool_calls","message":{"role":"assistant",'
    printf '"content":"","tool_calls":[{"id":"call_%s","type":"function",' "$results"
    printf '"function":{"name":"run","arguments":"{\\"command\\":\\"%s\\"}"}}]}}]}\n' "$1"
}

case $results in
0) call 'mkdir -p scratch && seq 1 1000 | tee scratch/numbers.txt' ;;
1) call 'echo password=hunter2 > settings.ini && cat settings.ini' ;;
2) call 'rm -rf /' ;;
3) call 'wc -l < scratch/numbers.txt > count.txt && cat count.txt' ;;
*)
    printf '{"model":"model.sh","choices":[{"finish_reason":"stop","message":{"role":"assistant",'
    printf '"content":"There are 1000 numbers; count.txt says so."}}]}\n'
    ;;
esac
