#!/bin/sh
# Lists the open questions below directories, and the files for their answers: questions.sh DIRECTORY…
set -eu
find "$@" -path '*/.delta/*/interaction/request.json' | while IFS= read -r request; do
    sed -n 's/.*"prompt":"\(.*\)","input_type".*/\1/p' "$request"
    printf '  %s\n' "${request%request.json}response.txt"
done
