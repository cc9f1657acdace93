#!/bin/sh
set -eu
# Serves as the model: reads a chat-completions request on stdin and prints a verdict.
case $(cat) in
*sorry*) verdict='{\"pass\": true, \"scores\": {\"politeness\": 5}, \"reason\": \"It answers, and is sorry.\"}' ;;
*Thank*) verdict='{\"pass\": true, \"scores\": {\"politeness\": 4}, \"reason\": \"It answers.\"}' ;;
*) verdict='{\"pass\": false, \"scores\": {\"politeness\": 1}, \"reason\": \"It is rude.\"}' ;;
esac
printf '{"model":"model.sh","choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"%s"}}]}\n' \
    "$verdict"
