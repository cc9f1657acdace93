#!/bin/sh
# The tasks in tasks.txt with GNU parallel, in the current directory: parallel.sh [OPTION…]
# The log tells which have failed; started again, it tries these once more and goes on with the rest.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
seq 1 "$(wc -l < "$here/tasks.txt")" |
    parallel --will-cite --joblog joblog --resume-failed "$@" "$here/task.sh" '{}'
