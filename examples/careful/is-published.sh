#!/bin/sh
# Whether a call of publish has happened: ends with 0 if it has, with 10 if it has not; anything else says that
# nobody knows. The call's arguments are on the standard input.
set -eu
file=$(sed -n 's/^{"file":"\([^"\\]*\)"}$/\1/p')
[ -f "$file" ] || exit 1
cmp -s -- "$file" published.sh || exit 10
echo "$file had been published."
