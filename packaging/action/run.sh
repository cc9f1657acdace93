#!/usr/bin/env bash
# The second step of the action: runs delta, writes the step's outputs and ends with delta's exit status. Needs jq.
set -euo pipefail
mapfile -t further < <(printf %s "$ARGUMENTS" | grep -v '^$' || true)
json=$RUNNER_TEMP/delta-result.json
status=0
delta run -a "$AGENT" -m "$TASK" --format json "${further[@]}" > "$json" || status=$?

# What a model wrote can be any text: the line that ends it must be one that it cannot know.
end=end_$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
{
    echo "exit-code=$status"
    printf 'result<<%s\n' "$end"
    jq -r '.result // "" | if type == "string" then . else tojson end' "$json"
    echo "$end"
    run=$(jq -r '.run_id // ""' "$json")
    cost=
    if [ -n "$run" ]; then
        workspace=$(jq -r .metadata.workspace_path "$json")
        cost=$(delta stats -w "$workspace" --format json "$run" | jq -r '.[0].cost // ""')
    fi
    echo "cost=$cost"
} >> "$GITHUB_OUTPUT"
exit "$status"
