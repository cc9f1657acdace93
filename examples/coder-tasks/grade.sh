#!/bin/sh
# grade.sh TASK FRESH: grades the trial in the current directory for delta eval: 0 solved, 1 not solved, and 2 if
# the check could not be run.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
status=0
"$here/judge.sh" "$1" "$2" "$PWD" || status=$?
case $status in
    0) exit 0 ;;
    # There is no sandbox here.
    125) echo 'the check could not be run in a sandbox' >&2; exit 2 ;;
    *) echo 'the check fails'; exit 1 ;;
esac
