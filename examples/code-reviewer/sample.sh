#!/bin/sh
# Creates a repository with a change to review: sample.sh DIRECTORY
set -eu
mkdir -p "$1"
cd "$1"
git init -q
commit() { git add -A && git -c user.name=sample -c user.email=sample@localhost -c commit.gpgsign=false commit -qm "$1"; }

cat > count.sh <<'SCRIPT'
count_to() {
    n=1
    # Includes the limit.
    while [ "$n" -le "$1" ]; do echo "$n"; n=$((n + 1)); done
}
SCRIPT
printf '%s\n' '. ./count.sh' 'echo "ten numbers"' 'count_to 10' > report.sh
commit 'Count'
sed 's/-le/-lt/' count.sh > count.new
mv count.new count.sh
commit 'Use the same comparison operator as elsewhere'
