#!/bin/sh
# A model that knows the reference solutions: it runs the one whose prompt it is given, and then answers. Needs jq.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
request=$(cat)
if printf '%s' "$request" | jq -e '.messages[-1].role == "tool"' >/dev/null; then
    echo '{"choices": [{"message": {"role": "assistant", "content": "Done."}, "finish_reason": "stop"}]}'
    exit
fi
prompt=$(printf '%s' "$request" | jq -r '[.messages[] | select(.role == "user")][0].content')
for task in "$here"/tasks/*/; do
    if [ "$(cat "$task/prompt.txt")" = "$prompt" ]; then
        jq -n --rawfile script "$task/solution.sh" '{choices: [{finish_reason: "tool_calls", message: {
            role: "assistant", content: null, tool_calls: [{id: "call_1", type: "function",
                function: {name: "bash", arguments: ({command: $script} | tojson)}}]}}]}'
        exit
    fi
done
echo 'no task has this prompt' >&2
exit 1
