#!/bin/sh
set -eu
# Serves as the model: reads a chat-completions request on stdin and objects to what is left to be done.
case $(cat) in
*TODO*) review='{\"objects\":true,\"reason\":\"Something is left to be done.\"}' ;;
*) review='{\"objects\":false,\"reason\":\"It does what it says.\"}' ;;
esac
printf '{"model":"model.sh","choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"%s"}}]}\n' \
    "$review"
