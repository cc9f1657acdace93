#!/bin/sh
# Prints the version in Cargo.toml: packaging/version.sh [PROGRAM...]. Fails if one of these has another version.
set -eu
version=$(sed -n '/^version = "\(.*\)"/{s//\1/p;q}' "$(dirname "$0")/../Cargo.toml")
for program; do
    printed=$("$program" -V)
    [ "${printed##* }" = "$version" ] || {
        echo "$program is '$printed'; Cargo.toml has version $version: build it again" >&2
        exit 1
    }
done
echo "$version"
