#!/bin/sh
# Tries the delta in PATH offline, on the examples: packaging/smoke.sh EXAMPLES
# Writes only below TMPDIR, with a HOME of its own, and removes what it wrote.
set -eu
examples=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset DELTA_MODEL DELTA_API_KEY DELTA_BASE_URL DELTA_AGENT DELTA_AGENTS
export HOME="$work/home" XDG_CONFIG_HOME="$work/home/.config" XDG_CACHE_HOME="$work/home/.cache"
mkdir "$HOME"
cd "$work"

fails() {
    echo "smoke: $1" >&2
    exit 1
}
is() { # WHAT EXPECTED ACTUAL
    [ "$2" = "$3" ] || fails "$1: expected '$2', got '$3'"
}

version=$(delta -V)
for program in delta-flow delta-sessions; do
    is "$program -V" "$program ${version#delta }" "$($program -V)"
done

greeting='I wrote a greeting of two words into greeting.txt.'
task='Greet the world'
is 'delta run' "$greeting" "$(delta run -q -a "$examples/hello-world" -w greet -m "$task")"
is greeting.txt 'Hello, world!' "$(cat greet/greeting.txt)"

status=0
delta run -q -a "$examples/hello-world" -w again -m "$task" --max-iterations 1 > /dev/null 2>&1 || status=$?
is 'exit status at a limit' 4 "$status"
is 'delta run, resumed' "$greeting" "$(delta run -q -a "$examples/hello-world" -w again -m "$task")"
is 'delta replay' 'identical: 3 requests' "$(delta replay -q -w greet LATEST)"

is 'delta flow run' '{"selected_edge":"yes","yes":2,"no":1}' \
    "$(delta flow run -q "$examples/flow-vote" -w vote -m 'Deploy on Fridays.' 2> flow.log || cat flow.log)"
delta help run | grep -q '^NAME' || fails 'delta help run prints no page'
# The agent that comes with delta needs no installed file.
delta run --dry-run -M some-model @coder 'fix the failing test' > dry-run.txt 2>&1 ||
    fails "@coder: $(cat dry-run.txt)"
echo "smoke: ok, $version"
