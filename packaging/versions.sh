#!/bin/sh
# Fails unless all files name one version, that of Cargo.toml, and prints it: packaging/versions.sh [DIR]
set -eu
cd "${1:-$(dirname "$0")/..}"
version=$(packaging/version.sh)
bad=0
is() { # FILE WHAT VERSION
    [ "$3" = "$version" ] || {
        echo "$1: $2 is ${3:-missing}; Cargo.toml has $version" >&2
        bad=1
    }
}
is Cargo.lock 'the version of delta-engine' \
    "$(sed -n '/^name = "delta-engine"$/{n;s/^version = "\(.*\)"$/\1/p;}' Cargo.lock)"
is README.md 'what "delta -V" prints' "$(sed -n 's/^delta \([0-9][0-9.]*\)$/\1/p' README.md)"
is CHANGELOG.md 'the newest version' "$(sed -n '/^## \([0-9][0-9.]*\).*/{s//\1/p;q;}' CHANGELOG.md)"
[ $bad = 0 ]
echo "$version"
