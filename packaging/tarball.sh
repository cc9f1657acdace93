#!/bin/sh
# Makes a tarball of static programs and of what they come with: packaging/tarball.sh BIN OUT
# Prints its name. Two of the same programs and the same commit are the same, byte for byte.
set -eu
umask 022
bin=$1 out=$2
mkdir -p "$out"
out=$(cd "$out" && pwd)
bin=$(cd "$bin" && pwd)
cd "$(dirname "$0")/.."
for program in delta delta-flow delta-sessions; do
    [ -f "$bin/$program" ] || {
        echo "make tarball: there is no $bin/$program; run make static or make static-glibc" >&2
        exit 1
    }
    if ldd "$bin/$program" 2> /dev/null | grep -q '=>'; then
        echo "make tarball: $bin/$program needs shared libraries; run make static or make static-glibc" >&2
        exit 1
    fi
done
[ -s "$bin/THIRD-PARTY" ] || {
    echo "make tarball: there is no $bin/THIRD-PARTY; run make static or make static-glibc" >&2
    exit 1
}
version=$(packaging/version.sh "$bin/delta" "$bin/delta-flow" "$bin/delta-sessions")
name=delta-engine-$version-$(uname -m)-linux
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
packaging/files.sh install "$bin" "$work/$name" / delta
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --format=ustar \
    --mtime="@$(packaging/date.sh)" -cf - "$name" | gzip -9n > "$out/$name.tar.gz"
packaging/sums.sh "$out"
echo "$out/$name.tar.gz"
