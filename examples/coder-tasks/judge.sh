#!/bin/sh
# judge.sh TASK FRESH WORKSPACE: whether the task is solved there. FRESH holds the files as they were. The check runs in
# a copy: it may leave files behind. Its commands are what a model wrote, so they run in the sandbox.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy" "$copy.sh"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
cp -a "$3/." "$copy"
rm -rf "$copy/.delta"
cd "$copy"
# Each line of a check must succeed, also one that begins with !.
sed 's/^\( *\)! \(.*\)$/\1if \2; then exit 1; fi/' "$here/tasks/$1/check.sh" > "$copy.sh"
status=0
PYTHONDONTWRITEBYTECODE=1 delta sandbox --rw "$copy" --ro / --ro "$copy.sh" --ro "$2" --no-network -- \
    sh "$copy.sh" "$2" >/dev/null 2>&1 || status=$?
exit "$status"
