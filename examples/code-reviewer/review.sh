#!/bin/sh
# Prints a review of the changes since a revision, for a repository's hook or for continuous integration:
#   review.sh [REVISION]      in a repository; the default is HEAD~
# Exits with 0 if the change is approved, 1 if not, and otherwise as delta does. $RUN_OPTIONS goes to delta run.
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
