#!/bin/sh
# Lists the questions that are open below some directories, and where their answers go: questions.sh DIRECTORY…
set -eu
find "$@" -path '*/.delta/*/interaction/request.json' | while IFS= read -r request; do
    sed -n 's/.*"prompt":"\(.*\)","input_type".*/\1/p' "$request"
    printf '  %s\n' "${request%request.json}response.txt"
done
