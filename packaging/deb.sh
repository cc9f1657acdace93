#!/bin/sh
# Builds a Debian package from the program in BIN: packaging/deb.sh BIN OUT
# Needs dpkg-deb and gzip; dependencies come from dpkg-shlibdeps if it is installed.
set -eu
umask 022
bin=$1 out=$2
cd "$(dirname "$0")/.."
for tool in dpkg dpkg-deb gzip md5sum; do
    command -v "$tool" > /dev/null || {
        echo "make deb: $tool is not installed; apt-get install dpkg gzip" >&2
        exit 1
    }
done

version=$(packaging/version.sh "$bin/delta")
arch=$(dpkg --print-architecture)
maintainer="${DEBFULLNAME:-The delta authors} <${DEBEMAIL:-delta-engine@invalid.invalid}>"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
mkdir -p "$tree"
packaging/files.sh install "$bin" "$tree" /usr delta
doc=$tree/usr/share/doc/delta-engine
packaging/debian/places.sh "$tree"
packaging/debian/changelog.sh "$version" > "$doc/changelog"
packaging/debian/copyright.sh > "$doc/copyright"
find "$tree/usr/share/man" "$doc/changelog" -type f -exec gzip -9n {} +
if command -v strip > /dev/null; then
    strip --remove-section=.comment --remove-section=.note "$tree/usr/bin/delta"
fi
mkdir -p "$tree/usr/share/lintian/overrides"
cp packaging/debian/delta-engine.lintian-overrides "$tree/usr/share/lintian/overrides/delta-engine"

# A static program has no dependencies.
depends=
is_dynamic() { ldd "$1" 2> /dev/null | grep -q '=>'; }
if is_dynamic "$tree/usr/bin/delta"; then
    if command -v dpkg-shlibdeps > /dev/null; then
        mkdir "$work/debian"
        printf 'Source: delta-engine\n\nPackage: delta-engine\nArchitecture: any\n' > "$work/debian/control"
        depends=$(cd "$work" && dpkg-shlibdeps -O tree/usr/bin/delta)
        depends=${depends#shlibs:Depends=}
    else
        # Without symbol files, require the version installed here.
        libc=$(dpkg-query -W -f '${Version}' libc6)
        depends="libc6 (>= ${libc%%-*}), libgcc-s1"
    fi
fi

mkdir "$tree/DEBIAN"
(cd "$tree" && find usr -type f -exec md5sum {} + | sort -k 2 > DEBIAN/md5sums)
{
    printf 'Package: delta-engine\nVersion: %s\nArchitecture: %s\n' "$version" "$arch"
    printf 'Maintainer: %s\n' "$maintainer"
    printf 'Installed-Size: %s\n' "$(du -k -s "$tree/usr" | cut -f 1)"
    [ -z "$depends" ] || printf 'Depends: %s\n' "$depends"
    printf 'Section: utils\nPriority: optional\n'
    # The rest is that of the source package.
    sed -n '/^Package:/,$p' packaging/debian/control | grep -v -e '^Package:' -e '^Architecture:' -e '^Depends:'
} > "$tree/DEBIAN/control"
for script in postinst postrm; do
    sed '/^#DEBHELPER#$/d' "packaging/debian/$script" > "$tree/DEBIAN/$script"
    chmod 755 "$tree/DEBIAN/$script"
done
mkdir -p "$out"
dpkg-deb --root-owner-group -Zxz --build "$tree" "$out/delta-engine_${version}_$arch.deb"
packaging/sums.sh "$out"
