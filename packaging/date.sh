#!/bin/sh
# Prints the date of a package, in seconds since 1970: SOURCE_DATE_EPOCH, or the last commit, or the changelog.
set -eu
cd "$(dirname "$0")/.."
if [ -n "${SOURCE_DATE_EPOCH:-}" ]; then
    echo "$SOURCE_DATE_EPOCH"
elif [ ! -e .git ] || ! git -c log.showSignature=false log -1 --format=%ct 2> /dev/null; then
    stat -c %Y CHANGELOG.md
fi
