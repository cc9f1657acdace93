#!/bin/sh
# A model as a command: a request of chat completions on standard input, the answer on standard output. In between, the
# words of the command line send it to a service with an API of its own, here that of Ollama.
set -eu

here=$(dirname "$0")
request=$(jq -c -f "$here/request.jq")
response=$(printf '%s\n' "$request" | "$@") || {
    code=$?
    printf '%s\n' "$response" >&2
    # With 22, curl says that the service has refused the request. Everything else may pass: ask again.
    [ "$code" -eq 22 ] && exit 1
    exit 75
}
printf '%s\n' "$response" | jq -c -f "$here/response.jq"
