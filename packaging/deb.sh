#!/bin/sh
# Builds a Debian package from the programs in BIN: packaging/deb.sh BIN OUT
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

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
arch=$(dpkg --print-architecture)
# The builder is the maintainer, as in devscripts(1).
maintainer="${DEBFULLNAME:-The delta authors} <${DEBEMAIL:-delta-engine@invalid.invalid}>"
date=$(LC_ALL=C date -u -R -d "@${SOURCE_DATE_EPOCH:-$(stat -c %Y CHANGELOG.md)}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
mkdir -p "$tree"
packaging/files.sh install "$bin" "$tree" /usr delta
doc=$tree/usr/share/doc/delta-engine
# Debian keeps these elsewhere.
rm "$doc/CHANGELOG.md" "$doc/LICENSE"
{
    printf 'delta-engine (%s) unstable; urgency=medium\n\n' "$version"
    # Join each entry into one line, then wrap to Debian's width.
    awk '/^- /{print ""} /^- |^  /{sub(/^ +/, ""); printf "%s ", $0} END{print ""}' CHANGELOG.md |
        fold -s -w 74 | sed -n 's/ *$//; /^- /s//  * /p; /^[^ ]/s//    &/p'
    printf '\n -- %s  %s\n' "$maintainer" "$date"
} > "$doc/changelog"
mkdir -p "$tree/usr/share/zsh/vendor-completions"
mv "$tree/usr/share/zsh/site-functions/_delta" "$tree/usr/share/zsh/vendor-completions/"
rmdir "$tree/usr/share/zsh/site-functions"
find "$tree/usr/share/man" "$doc/changelog" -type f -exec gzip -9n {} +
if command -v strip > /dev/null; then
    strip --remove-section=.comment --remove-section=.note "$tree"/usr/bin/*
fi
{
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n'
    printf 'Upstream-Name: delta-engine\n\nFiles: *\n'
    sed -n 's/^Copyright (c) /Copyright: /p' LICENSE
    printf 'License: Expat\n\nLicense: Expat\n'
    sed '1,/^Copyright/d' LICENSE | sed '1{/^$/d}; s/^$/./; s/^/ /'
} > "$doc/copyright"

mkdir -p "$tree/usr/share/lintian/overrides"
cat > "$tree/usr/share/lintian/overrides/delta-engine" << 'TEXT'
# The YAML parser is libyaml translated to Rust, with its messages. No shared library can replace it.
delta-engine: embedded-library libyaml [usr/bin/delta]
delta-engine: embedded-library libyaml [usr/bin/delta-flow]
TEXT

# A static program has no dependencies.
depends=
is_dynamic() { ldd "$1" 2> /dev/null | grep -q '=>'; }
if is_dynamic "$tree/usr/bin/delta"; then
    if command -v dpkg-shlibdeps > /dev/null; then
        mkdir "$work/debian"
        printf 'Source: delta-engine\n\nPackage: delta-engine\nArchitecture: any\n' > "$work/debian/control"
        depends=$(cd "$work" && dpkg-shlibdeps -O tree/usr/bin/delta tree/usr/bin/delta-flow tree/usr/bin/delta-sessions)
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
    # git-delta also installs /usr/bin/delta.
    printf 'Conflicts: git-delta\nSection: utils\nPriority: optional\n'
    printf 'Description: run LLM agents that are directories of commands\n'
    printf ' An agent is a directory; its tools, hooks, sub-agents and even its model are\n'
    printf ' commands. The memory of a run is a file, journal.jsonl, next to the files that\n'
    printf ' the agent works on. The same command resumes a run that was killed. Flows are\n'
    printf ' graphs of agents and commands, and are run and resumed in the same way.\n'
} > "$tree/DEBIAN/control"
mkdir -p "$out"
dpkg-deb --root-owner-group -Zxz --build "$tree" "$out/delta-engine_${version}_$arch.deb"
