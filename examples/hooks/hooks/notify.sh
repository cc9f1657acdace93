#!/bin/sh
# Tells about an error: in a file, and to the program in NOTIFY, if there is one (notify-send, a script
# that sends mail).
set -eu
printf '%s\n' "$ERROR_MESSAGE" >>"$RUN_DIR/errors.txt"
[ -z "${NOTIFY-}" ] || "$NOTIFY" "delta: $ERROR_MESSAGE"
