#!/bin/sh
set -eu
# Serves as the model: a ticket is a bug if the prompt says so of one of its words, as in "CRASH means bug".
request=$(cat)
label=question
for word in $(printf %s "$request" | grep -o '[A-Z][A-Z]* means bug' | cut -d ' ' -f 1 | tr '[:upper:]' '[:lower:]'); do
    case $request in *" $word"*) label=bug ;; esac
done
printf '{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"%s"}}]}\n' "$label"
