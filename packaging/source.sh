#!/bin/sh
# Makes the source packages for Debian and RPM, which build without a network: packaging/source.sh OUT
#   OUT/delta-engine_VERSION.orig.tar.xz   HEAD and the crates that it needs, in vendor/
#   OUT/delta-engine-VERSION/              the same, unpacked, with debian/: run dpkg-buildpackage in it
#   OUT/delta-engine.spec                  for rpmbuild --define "_sourcedir OUT"
# Needs git, cargo and, for what cargo has not fetched yet, the network.
set -eu
umask 022
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
version=$(packaging/version.sh)
name=delta-engine-$version
tree=$out/$name
date=@$(packaging/date.sh)
rm -rf "$tree"
mkdir "$tree"
git archive HEAD | tar -C "$tree" -xf -
mkdir "$tree/.cargo"
(cd "$tree" && cargo vendor --locked --quiet vendor > /dev/null)
cat > "$tree/.cargo/config.toml" << 'TEXT'
[source.crates-io]
replace-with = "vendored"

[source.vendored]
directory = "vendor"
TEXT
# Cargo wants every crate of Cargo.lock to be there. Those for Windows are two thirds of all bytes: empty them.
for crate in "$tree"/vendor/win*; do
    find "$crate" -type f ! -name Cargo.toml ! -name .cargo-checksum.json -delete
    find "$crate" -mindepth 1 -type d -empty -delete
    mkdir -p "$crate/src"
    : > "$crate/src/lib.rs"
    sed -i 's/"files":{[^}]*}/"files":{}/' "$crate/.cargo-checksum.json"
done
tar -C "$out" --sort=name --owner=0 --group=0 --numeric-owner --mtime="$date" -cf - "$name" |
    xz -2 -T0 > "$out/delta-engine_$version.orig.tar.xz"
cp -r packaging/debian "$tree/debian"
rm "$tree"/debian/*.sh
SOURCE_DATE_EPOCH=${date#@} packaging/debian/changelog.sh "$version-1" > "$tree/debian/changelog"
{
    packaging/debian/copyright.sh
    printf '\nFiles: vendor/*\nCopyright: the authors of each crate\nLicense: of-each-crate\n'
    printf ' Each directory has its own, named in its Cargo.toml. THIRD-PARTY in the package has all that are linked.\n'
} > "$tree/debian/copyright"
sed "s/@VERSION@/$version/" packaging/delta-engine.spec.in > "$out/delta-engine.spec"
packaging/sums.sh "$out"
echo "$out/delta-engine_$version.orig.tar.xz"
