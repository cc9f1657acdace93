#!/bin/sh
if [ "$TOOL_NAME" = remove ]; then
    echo '{"action":"deny","message":"nothing is removed here"}' > "$DELTA_HOOK_IO_PATH/output/control.json"
fi
