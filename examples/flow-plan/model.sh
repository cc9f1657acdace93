#!/bin/sh
set -eu
# Plays the planner's and the reviewer's model: a chat-completions request on stdin, a response on stdout.
request=$(cat)

answer() { # TEXT
    printf '{"model":"model.sh","choices":[{"finish_reason":"stop","message":{"role":"assistant",'
    printf '"content":"%s"}}]}\n' "$1"
}

case $1 in
planner) answer '{\"subtask_inputs\":[\"beginning\",\"middle\",\"end\"]}' ;;
reviewer)
    # It is given the outputs of all steps, in their order.
    case $request in
    *beginning.txt*middle.txt*end.txt*) verdict=approve reason='All parts are there.' ;;
    *) verdict=refuse reason='A part is missing.' ;;
    esac
    answer "{\\\"selected_edge\\\":\\\"$verdict\\\",\\\"reason\\\":\\\"$reason\\\"}"
    ;;
esac
