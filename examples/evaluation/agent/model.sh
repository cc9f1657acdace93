#!/bin/sh
set -eu
# Serves as the model: reads a chat-completions request on stdin and prints one word.
case $(cat) in
*crash* | *broken*) label=bug ;;
*) label=question ;;
esac
printf '{"model":"model.sh","choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"%s"}}]}\n' \
    "$label"
