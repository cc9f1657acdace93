#!/bin/sh
# Proves each check: it fails on the untouched files and passes on those of the reference solution.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
good=0
all=0
for task in "$here"/tasks/*; do
    name=${task##*/}
    all=$((all + 1))
    mkdir "$scratch/$name" "$scratch/$name/fresh" "$scratch/$name/untouched" "$scratch/$name/solved"
    (cd "$scratch/$name/fresh" && sh "$task/setup.sh")
    cp -a "$scratch/$name/fresh/." "$scratch/$name/untouched"
    cp -a "$scratch/$name/fresh/." "$scratch/$name/solved"
    (cd "$scratch/$name/solved" && sh "$task/solution.sh")
    if "$here/judge.sh" "$name" "$scratch/$name/fresh" "$scratch/$name/untouched"; then
        echo "$name: the check passes on untouched files"
    elif ! "$here/judge.sh" "$name" "$scratch/$name/fresh" "$scratch/$name/solved"; then
        echo "$name: the check fails on the reference solution"
    else
        good=$((good + 1))
    fi
done
echo "$good of $all checks are right"
[ "$good" -eq "$all" ]
