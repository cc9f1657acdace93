#!/bin/sh
# Forbids a call that a pattern in deny.txt matches. The call comes on stdin, as JSON.
set -eu
code=0
grep -qEf "$AGENT_HOME/hooks/deny.txt" || code=$?
case $code in
0)
    message='hooks/deny.txt forbids this command; find another way'
    printf '{"action":"deny","message":"%s"}\n' "$message" >"$DELTA_HOOK_IO_PATH/output/control.json"
    ;;
1) ;;         # nothing matches
*) exit 1 ;;  # no list, no tools
esac
