#!/bin/sh
# follow.sh ARGUMENT…: runs `delta run` with these arguments, and shows its events as they come: the text of answers,
# the commands and their exit codes, and how it ended. Its exit status is that of the run, or 1 without a result.
set -eu

delta run -q --format jsonl --deltas "$@" | jq -nrj --unbuffered '
  foreach (inputs, {type: "end"}) as $event ({};
    .arrived = (.now == "TEXT_DELTA") | .now = $event.type;
    if $event.type == "TEXT_DELTA" then $event.text
    elif $event.type == "THOUGHT" then (if .arrived then "" else $event.content end), "\n"
    elif $event.type == "ACTION_REQUEST" then "+ \($event.resolved_command)\n"
    elif $event.type == "ACTION_RESULT" then "  \($event.status), exit code \($event.exit_code)\n"
    elif $event.type == "result" then
      "\($event.status): \($event.stop_reason)\n", ($event.exit_code as $code | "" | halt_error($code))
    elif $event.type == "end" then "" | halt_error(1)
    else empty end)'
