#!/bin/sh
# Runs the task in line N of tasks.txt and writes its answer to done/N.txt: task.sh N
# Works in the current directory. Safe to repeat, even concurrently: the run has a fixed id, so it starts only once,
# resumes after an interruption, and prints its stored result when complete. Exits with delta's status. $RUN_OPTIONS
# goes to delta run.
set -eu
n=$1
here=$(cd "$(dirname "$0")" && pwd)
task=$(sed -n "${n}p" "$here/tasks.txt")
[ -n "$task" ] || { echo "task.sh: there is no task $n" >&2; exit 2; }
mkdir -p work 'done'
answer=$(mktemp "work/answer.$n.XXXXXX")
trap 'rm -f "$answer"' EXIT

# Run delta in the background and pass signals on: a shell handles a signal only after its command has ended.
# shellcheck disable=SC2086 # several words
delta run -q ${RUN_OPTIONS-} -a "$here/../../calculator" -w "work/$n" --run-id "task-$n" -m "$task" > "$answer" &
delta=$!
trap 'kill -TERM "$delta"' TERM INT HUP
code=0
wait "$delta" || code=$?
while kill -0 "$delta" 2> /dev/null; do # a signal ended the wait
    code=0
    wait "$delta" || code=$?
done

if [ "$code" = 0 ]; then
    mv "$answer" "done/$n.txt"
elif [ -n "$(delta list-runs -w "work/$n" --status FAILED --first 2> /dev/null || true)" ]; then
    # A failed run cannot be resumed. Set it aside, so that the next start begins a new one.
    mv "work/$n" "work/$n.failed.$$"
fi
exit "$code"
