#!/bin/sh
# Makes the crate, builds it from itself, and tries what cargo install brings: packaging/package-check.sh OUT
# Needs cargo; what it has not fetched yet comes from the network.
set -eu
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
version=$(packaging/versions.sh)
cargo package --locked --no-verify --allow-dirty --quiet
target=${CARGO_TARGET_DIR:-target}
cp "$target/package/delta-engine-$version.crate" "$out/"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -C "$work" -xzf "$out/delta-engine-$version.crate"
# The profile of the demo: it is the same code, sooner.
cargo install --quiet --locked --profile quick --path "$work/delta-engine-$version" --root "$work/installed" \
    --target-dir "$target"
PATH="$work/installed/bin:$PATH" packaging/smoke.sh "$work/delta-engine-$version/examples"
packaging/sums.sh "$out"
echo "$out/delta-engine-$version.crate"
