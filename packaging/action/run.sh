#!/usr/bin/env bash
# The second step of the action: runs delta, writes the step's outputs and ends with delta's exit status. Needs jq.
set -euo pipefail
mapfile -t further < <(printf %s "$ARGUMENTS" | grep -v '^$' || true)
for word in ${further[@]+"${further[@]}"}; do
    [ "$word" != -- ] || { echo 'arguments: "--" would end the options of the action itself' >&2 && exit 2; }
done
json=$RUNNER_TEMP/delta-result.json
# What a model writes can be any text: the line that ends it must be one that it cannot know.
end=end_$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
# The progress has texts of the model, in which the runner would look for its commands.
echo "::stop-commands::$end" >&2
status=0
delta run -a "$AGENT" -w . -m "$TASK" "${further[@]}" --format json > "$json" || status=$?
echo "::$end::" >&2

# member EXPRESSION: of the result; nothing if delta printed none.
member() { jq -r "$1" "$json" 2> /dev/null || true; }
run=$(member '.run_id // ""')
cost=
if [ -n "$run" ]; then
    workspace=$(member .metadata.workspace_path)
    cost=$(delta stats -w "$workspace" --format json "$run" | jq -r '.[0].cost // ""') || cost=
fi
{
    echo "exit-code=$status"
    printf 'result<<%s\n' "$end"
    member '.result // "" | if type == "string" then . else tojson end'
    echo "$end"
    echo "cost=$cost"
} >> "$GITHUB_OUTPUT"
exit "$status"
