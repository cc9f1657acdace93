#!/bin/sh
# Runs the tasks in tasks.txt with GNU parallel, in the current directory: parallel.sh [OPTION…]
# The log records failures; when repeated, it retries the failed tasks and continues with the rest.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
seq 1 "$(wc -l < "$here/tasks.txt")" |
    parallel --will-cite --joblog joblog --resume-failed "$@" "$here/task.sh" '{}'
