#!/bin/sh
# Runs this example in a fresh directory and shows the files it creates: demo.sh [DELTA]
set -eu
delta=${1:-delta}
agent=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

show() { printf '\n\033[1m%s\033[0m\n' "$*" | if [ -t 1 ]; then cat; else sed 's/\x1b\[[0-9;]*m//g'; fi; }

show "delta run -a examples/hello-world -w WORK -m 'Greet the world'"
"$delta" run -a "$agent" -w "$work" -m 'Greet the world'

show 'The files it created'
(cd "$work" && find . -type f ! -path './.delta/*' -exec sh -c 'printf "%s: " "$1"; cat "$1"' - {} \;)

show 'Its memory, journal.jsonl: one event per line'
run=$work/.delta/$(cat "$work/.delta/LATEST")
cut -c 1-150 "$run/journal.jsonl" | sed "s|$work|WORK|g; s|\"agent_home\":\"[^\"]*/examples|\"agent_home\":\"…/examples|"

show 'Next to it, everything that was sent and everything that ran'
(cd "$run" && find io -type f | sort)

cat <<'TEXT'

To use a real model, set its server, and disable the script with --set llm.command=
  export DELTA_API_KEY=...                              a key for the public endpoint, or
  export DELTA_BASE_URL=http://127.0.0.1:8080/v1        your own server (llama.cpp, vLLM, Ollama)
  delta run --set llm.command= -a examples/hello-world -w WORK -m 'Greet the world'
TEXT
