#!/bin/sh
# Denies a call that matches a pattern in deny.txt. Reads the call as JSON on stdin.
set -eu
code=0
grep -qEf "$AGENT_HOME/hooks/deny.txt" || code=$?
case $code in
0)
    message='hooks/deny.txt forbids this command; find another way'
    printf '{"action":"deny","message":"%s"}\n' "$message" >"$DELTA_HOOK_IO_PATH/output/control.json"
    ;;
1) ;;         # no match
*) exit 1 ;;  # without the list, deny everything
esac
