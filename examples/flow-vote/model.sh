#!/bin/sh
set -eu
# Serves as a model: reads a chat-completions request on stdin and prints a response.
request=$(cat)

answer() { # TEXT
    printf '{"model":"model.sh","choices":[{"finish_reason":"stop","message":{"role":"assistant",'
    printf '"content":"%s"}}]}\n' "$1"
}

case $1 in
strict) answer '{\"vote\":\"no\",\"reason\":\"Nobody has tried it.\"}' ;;
kind) answer '{\"vote\":\"yes\",\"reason\":\"It saves everybody an hour.\"}' ;;
hasty)
    # The first answer ignores the required format; the flow sends it back.
    case $request in
    *'This answer will not do'*) answer '{\"vote\":\"yes\",\"reason\":\"Why not?\"}' ;;
    *) answer 'Sounds good!' ;;
    esac
    ;;
esac
