#!/bin/sh
set -eu
# Serves as the planner's and the reviewer's model: reads a chat-completions request on stdin, prints a response.
request=$(cat)

answer() { # TEXT
    printf '{"model":"model.sh","choices":[{"finish_reason":"stop","message":{"role":"assistant",'
    printf '"content":"%s"}}]}\n' "$1"
}

case $1 in
planner) answer '{\"subtask_inputs\":[\"beginning\",\"middle\",\"end\"]}' ;;
reviewer)
    # Its input has the outputs of all steps, in order.
    case $request in
    *beginning.txt*middle.txt*end.txt*) verdict=approve reason='All parts are there.' ;;
    *) verdict=refuse reason='A part is missing.' ;;
    esac
    answer "{\\\"selected_edge\\\":\\\"$verdict\\\",\\\"reason\\\":\\\"$reason\\\"}"
    ;;
esac
