#!/bin/sh
# Fails if a page has a warning, or if its text in text/ is not that of the page. Words are compared,
# not lines: another version of mandoc may break them elsewhere.
set -eu
LC_ALL=C.UTF-8
export LC_ALL
cd "$(dirname "$0")"
for tool in mandoc col; do
    if ! command -v "$tool" > /dev/null; then
        echo "man/check.sh: skipped, $tool is not installed" >&2
        exit 0
    fi
done
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
bad=0
mandoc -Tlint -Wwarning delta*.[157] || bad=1
./render.sh "$fresh"
words() { tr -s '[:space:]' '\n' < "$1"; }
for text in "$fresh"/*.txt text/*.txt; do
    name=${text##*/}
    if [ ! -f "$fresh/$name" ]; then
        echo "man/text/$name: there is no such page; remove it" >&2
        bad=1
    elif [ ! -f "text/$name" ] || [ "$(words "text/$name")" != "$(words "$fresh/$name")" ]; then
        echo "man/text/$name: stale; run man/render.sh" >&2
        bad=1
    fi
done
exit $bad
