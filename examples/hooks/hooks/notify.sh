#!/bin/sh
# Reports an error: to a file, and to the program in NOTIFY, if it is set (notify-send, or a script that
# sends mail).
set -eu
printf '%s\n' "$ERROR_MESSAGE" >>"$RUN_DIR/errors.txt"
[ -z "${NOTIFY-}" ] || "$NOTIFY" "delta: $ERROR_MESSAGE"
