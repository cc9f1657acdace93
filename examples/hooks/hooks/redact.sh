#!/bin/sh
# Removes the values of secrets from a result. Reads the result as JSON on stdin; a value ends at a
# space, a quote or an escape.
set -eu
sed -E 's/(password|token|secret|api_key)=[^ "\\]+/\1=[redacted]/g' >"$DELTA_HOOK_IO_PATH/output/final_payload.json"
