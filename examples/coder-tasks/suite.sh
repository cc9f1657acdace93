#!/bin/sh
# suite.sh DIR [NAME SET]...: writes the tasks as a suite for delta eval: DIR/evaluations.yaml, a case for each
# task, and the files that each trial gets a copy of. Each setting is a name and a mapping of keys of agent.yaml:
# suite.sh DIR small '{llm.model: NAME}'. AGENT names another agent than @coder. Needs jq.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ $(($# % 2)) -eq 1 ] || { echo 'usage: suite.sh DIR [NAME SET]...' >&2; exit 2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)
shift
{
    echo 'suites:'
    echo '- name: coder-tasks'
    echo '  description: small tasks on code, each with a check by command'
    echo "  target: {agent: '${AGENT:-@coder}'}"
    echo '  cases: cases.jsonl'
    echo '  timeout_ms: 1800000'
    [ $# -eq 0 ] || echo '  settings:'
    while [ $# -gt 0 ]; do
        echo "  - {name: '$1', set: $2}"
        shift 2
    done
} >"$dir/evaluations.yaml"
for task in "$here"/tasks/*; do
    name=${task##*/}
    # fresh is complete or not there.
    if [ ! -d "$dir/fresh/$name" ]; then
        rm -rf "$dir/making"
        mkdir -p "$dir/making" "$dir/fresh"
        (cd "$dir/making" && sh "$task/setup.sh") >/dev/null
        mv "$dir/making" "$dir/fresh/$name"
    fi
    jq -cn --arg id "$name" --rawfile input "$task/prompt.txt" --arg grade "$here/grade.sh" \
        '{id: $id, input: $input, workspace: "fresh/\($id)",
          assert: [{type: "exec", value: [$grade, $id, "${FLOW_HOME}/fresh/\($id)"]}]}'
done >"$dir/cases.jsonl"
