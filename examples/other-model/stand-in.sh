#!/bin/sh
# Stands in for the service: calls the tool, and then says what it printed.
set -eu

jq -c '{model, done: true, done_reason: "stop", prompt_eval_count: 9, eval_count: 3}
  + if .messages[-1].role == "tool" then
      {message: {role: "assistant", content: "There are \(.messages[-1].content | tonumber) files."}}
    else
      {message: {role: "assistant", content: "",
        tool_calls: [{function: {name: "count_files", arguments: {directory: "."}}}]}}
    end'
