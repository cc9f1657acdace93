#!/bin/sh
# Prints a review of the changes since a revision, for a Git hook or for CI:
#   review.sh [REVISION]      in a repository; the default is HEAD~
# Exits with 0 if the change is approved, 1 if not, or with delta's status on failure. $RUN_OPTIONS goes to delta run.
set -eu
agent=$(cd "$(dirname "$0")" && pwd)
diff=$(mktemp)
review=$(mktemp)
trap 'rm -f "$diff" "$review"' EXIT
git diff "${1:-HEAD~}" > "$diff"
# shellcheck disable=SC2086 # several words
delta run -q ${RUN_OPTIONS-} -a "$agent" -w . -m - < "$diff" > "$review" || exit $?
cat "$review"
[ "$(tail -n 1 "$review")" = 'VERDICT: approve' ]
