#!/bin/sh
# Renders a page into the directory whose pictures the model sees: screenshot.sh PAGE
set -eu
page=$(realpath -- "$1")
for browser in chromium chromium-browser google-chrome; do
    command -v "$browser" >/dev/null || continue
    profile=$(mktemp -d)
    trap 'rm -rf "$profile"' EXIT
    "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$profile" \
        --window-size=800,600 --screenshot="$DELTA_ATTACH/page.png" "file://$page" >"$profile/log" 2>&1 || {
        cat "$profile/log"
        exit 1
    }
    echo "rendered $1"
    exit 0
done
echo 'there is no browser: install chromium'
exit 1
