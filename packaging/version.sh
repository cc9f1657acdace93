#!/bin/sh
# Prints the version in Cargo.toml: packaging/version.sh [BIN]. Fails if the programs in BIN have another one.
set -eu
bin=${1:+$(cd "$1" && pwd)}
cd "$(dirname "$0")/.."
version=$(sed -n '/^version = "\(.*\)"/{s//\1/p;q}' Cargo.toml)
if [ -n "$bin" ]; then
    printed=$("$bin/delta" -V)
    [ "${printed##* }" = "$version" ] || {
        echo "$bin has $printed; Cargo.toml has version $version: build it again" >&2
        exit 1
    }
fi
echo "$version"
