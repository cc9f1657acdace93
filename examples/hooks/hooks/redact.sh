#!/bin/sh
# Takes the values of secrets out of what a tool said. The result comes on stdin, as JSON; a value ends
# where a space, a quote or an escape begins.
set -eu
sed -E 's/(password|token|secret|api_key)=[^ "\\]+/\1=[redacted]/g' >"$DELTA_HOOK_IO_PATH/output/final_payload.json"
