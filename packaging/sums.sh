#!/bin/sh
# Writes the checksums of all packages in a directory into its SHA256SUMS: packaging/sums.sh DIR
set -eu
cd "$1"
find . -maxdepth 1 -type f \( -name '*.tar.*' -o -name '*.crate' -o -name '*.deb' -o -name '*.rpm' \) -printf '%f\n' |
    LC_ALL=C sort | xargs -r sha256sum > .SHA256SUMS.new
mv .SHA256SUMS.new SHA256SUMS
