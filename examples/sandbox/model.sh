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
0) call 'echo inside > inside.txt && cat inside.txt' ;;
1) call 'echo outside > $AGENT_HOME/outside.txt' ;;
2) call 'echo forged >> .delta/LATEST' ;;
3) call 'cat /proc/net/route | tail -n +2' ;;
4) call 'ls /root /home' ;;
*)
    printf '{"model":"model.sh","choices":[{"finish_reason":"stop","message":{"role":"assistant",'
    printf '"content":"I could write inside the workspace and nowhere else."}}]}\n'
    ;;
esac
