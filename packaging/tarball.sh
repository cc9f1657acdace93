#!/bin/sh
# Makes a tarball of a static program and of what it comes with: packaging/tarball.sh BIN OUT
# Prints its name. Two of the same programs and the same commit are the same, byte for byte.
set -eu
umask 022
bin=$1 out=$2
mkdir -p "$out"
out=$(cd "$out" && pwd)
bin=$(cd "$bin" && pwd)
cd "$(dirname "$0")/.."
for file in delta THIRD-PARTY; do
    [ -s "$bin/$file" ] || {
        echo "make tarball: there is no $bin/$file; run make static or make static-glibc" >&2
        exit 1
    }
done
if ldd "$bin/delta" 2> /dev/null | grep -q '=>'; then
    echo "make tarball: $bin/delta needs shared libraries; run make static or make static-glibc" >&2
    exit 1
fi
version=$(packaging/version.sh "$bin/delta")
name=delta-engine-$version-$(uname -m)-linux
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
packaging/files.sh install "$bin" "$work/$name" / delta
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --format=ustar \
    --mtime="@$(packaging/date.sh)" -cf - "$name" | gzip -9n > "$out/$name.tar.gz"
packaging/sums.sh "$out"
echo "$out/$name.tar.gz"
