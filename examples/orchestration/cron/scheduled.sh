#!/bin/sh
# Starts a scheduled task: scheduled.sh AGENT DIRECTORY MESSAGE
# The first start of a day begins a run. Later starts resume an unfinished run, or do nothing. The answer is written to
# DIRECTORY/answers/DAY.txt. If the run does not complete, MAILTO gets a mail, once for each new reason.
set -eu
agent=$1 dir=$2 message=$3
mkdir -p "$dir/answers"

# Run only one instance of this script. delta's own lock protects a run, but not the mail below. The descriptor is
# closed for delta, so that no leftover process of a tool can hold the lock.
exec 9> "$dir/lock"
flock -n 9 || exit 0

id=$(delta list-runs -w "$dir/work" --resumable --first 2> /dev/null || true)
[ -n "$id" ] || id=$(date -u +%Y-%m-%d)
code=0
# shellcheck disable=SC2086 # several words
delta run -q ${RUN_OPTIONS-} -a "$agent" -w "$dir/work" --run-id "$id" -m "$message" \
    > "$dir/answer" 2> "$dir/messages" 9>&- || code=$?

case $code in
0)
    mv "$dir/answer" "$dir/answers/$id.txt"
    rm -f "$dir/reported"
    exit 0
    ;;
4) what='interrupted, somebody must decide; then the next start resumes' ;;
75) what='interrupted, the next start resumes' ;;
101) what='waiting for an answer' ;;
*) what="ended with exit code $code" ;;
esac
state="$id $what $(cat "$dir/messages")"
[ "$state" != "$(cat "$dir/reported" 2> /dev/null || true)" ] || exit "$code"
{
    cat "$dir/messages"
    printf '\nThe last steps of run %s in %s:\n\n' "$id" "$dir/work"
    delta log -w "$dir/work" -n 10 "$id" 2>&1 || true
} | mail -s "$(basename "$agent"): $what" "${MAILTO:-root}"
printf '%s\n' "$state" > "$dir/reported"
exit "$code"
