#!/bin/sh
# Runs the task in line N of tasks.txt, and leaves its answer in done/N.txt: task.sh N
# Works in the current directory. Safe to start as often as one likes, also twice at once: the run has a name, so
# that it is started once, taken up where it was interrupted, and told again when it is complete. Exits as delta
# does. $RUN_OPTIONS goes to delta run.
set -eu
n=$1
here=$(cd "$(dirname "$0")" && pwd)
task=$(sed -n "${n}p" "$here/tasks.txt")
[ -n "$task" ] || { echo "task.sh: there is no task $n" >&2; exit 2; }
mkdir -p work 'done'
answer=$(mktemp "work/answer.$n.XXXXXX")
trap 'rm -f "$answer"' EXIT

# In the background, because a shell acts on a signal only when its command has ended, and passed on.
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
    # What has failed cannot be taken up. It is put aside, so that the next start begins anew.
    mv "work/$n" "work/$n.failed.$$"
fi
exit "$code"
