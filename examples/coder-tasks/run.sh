#!/bin/sh
# run.sh AGENT DIR [TRIALS [TASK...]]: lets an agent try the tasks in workspaces below DIR, and prints how many it
# solved, what its tools refused, its iterations and tokens. The same command goes on where it stopped. OPTIONS is
# passed to delta run: OPTIONS="--set llm.model=NAME". Needs jq.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 2 ] || { echo 'usage: run.sh AGENT DIR [TRIALS [TASK...]]' >&2; exit 2; }
agent=$(cd "$1" && pwd)
mkdir -p "$2"
dir=$(cd "$2" && pwd)
trials=${3:-1}
shift "$(($# < 3 ? $# : 3))"
# shellcheck disable=SC2046 # a word for each task
[ $# -gt 0 ] || set -- $(ls "$here/tasks")
solved=0
tried=0
for task; do
    trial=1
    while [ "$trial" -le "$trials" ]; do
        at=$dir/$task.$trial
        # fresh is complete or not there.
        if [ ! -d "$at/fresh" ]; then
            rm -rf "$at"
            mkdir -p "$at/making"
            (cd "$at/making" && sh "$here/tasks/$task/setup.sh")
            cp -a "$at/making" "$at/work"
            mv "$at/making" "$at/fresh"
        fi
        code=0
        # shellcheck disable=SC2086 # OPTIONS is words
        delta run -q ${OPTIONS:-} -a "$agent" -w "$at/work" --run-id trial -m "$(cat "$here/tasks/$task/prompt.txt")" \
            >"$at/answer.txt" 2>>"$at/messages.txt" || code=$?
        verdict=failed
        if "$here/judge.sh" "$task" "$at/fresh" "$at/work"; then
            verdict=solved
            solved=$((solved + 1))
        fi
        tried=$((tried + 1))
        echo "$task.$trial: $verdict, exit code $code"
        trial=$((trial + 1))
    done
done
echo "solved: $solved of $tried"
find "$dir" -path '*/work/.delta/trial/journal.jsonl' -exec cat {} + | jq -rs '
    def kind: if test("times, at lines|times if") then "edit: several places"
        elif test("^\\[stderr\\]\nold is not in") then "edit: not found"
        elif test("was not run:|are not a JSON object") then "arguments invalid"
        elif test("there is no tool") then "no such tool"
        elif test("\\[ended after") then "time is over"
        elif test("^\\[stderr\\]\nthere is no ") then "no such path"
        else "other" end;
    "tool calls: \(map(select(.type == "ACTION_RESULT")) | length)",
    "iterations: \(map(select(.type == "THOUGHT")) | length)",
    "tokens: \(map(select(.type == "THOUGHT") | .usage.total_tokens // 0) | add // 0)",
    (map(select(.type == "ACTION_RESULT" and .status != "SUCCESS"
            and (.tool_name | startswith("bash") | not) or .exit_code == 124 or .status == "ERROR"))
        | group_by(.observation_content | kind)[]
        | "refused, \(.[0].observation_content | kind): \(length)")'
