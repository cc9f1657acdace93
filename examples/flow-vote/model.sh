#!/bin/sh
set -eu
# Plays a model: a chat-completions request on stdin, a response on stdout.
request=$(cat)

answer() { # TEXT
    printf '{"model":"model.sh","choices":[{"finish_reason":"stop","message":{"role":"assistant",'
    printf '"content":"%s"}}]}\n' "$1"
}

case $1 in
strict) answer '{\"vote\":\"no\",\"reason\":\"Nobody has tried it.\"}' ;;
kind) answer '{\"vote\":\"yes\",\"reason\":\"It saves everybody an hour.\"}' ;;
hasty)
    # At first it forgets what it was told to answer; the flow sends the answer back.
    case $request in
    *'This answer will not do'*) answer '{\"vote\":\"yes\",\"reason\":\"Why not?\"}' ;;
    *) answer 'Sounds good!' ;;
    esac
    ;;
esac
