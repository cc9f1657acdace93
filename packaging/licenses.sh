#!/bin/sh
# Prints the licences of the crates that the programs contain, each text once: packaging/licenses.sh
# Needs cargo, and the sources of the crates, which a build has fetched.
set -eu
LC_ALL=C
export LC_ALL
cd "$(dirname "$0")/.."
platform=$(rustc -vV | sed -n 's/^host: //p')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Lines of: name, version, directory.
${CARGO:-cargo} metadata --format-version 1 --locked --filter-platform "$platform" > "$work/metadata"
# shellcheck disable=SC2016
tr ',' '\n' < "$work/metadata" | sed -n 's|^"manifest_path":"\(.*\)"$|\1|p' | tr '\n' '\0' |
    xargs -0 awk 'FNR == 1 { name = version = "" }
        !name && sub(/^name = "/, "") { sub(/".*/, ""); name = $0 }
        !version && sub(/^version = "/, "") { sub(/".*/, ""); version = $0; dir = FILENAME
            sub(/\/Cargo.toml$/, "", dir); print name, version, dir }' > "$work/places"

# Lines of: name, version, licence.
${CARGO:-cargo} tree --locked -e normal --target "$platform" --prefix none -f '{p}|{l}' > "$work/tree"
sed -n 's/ (\*)$//; s/^\([^ ]*\) v\([^ |]*\)[^|]*|/\1 \2 /p' "$work/tree" | grep -v '^delta-engine ' |
    sort -u > "$work/crates"

mkdir "$work/texts" "$work/users"
while read -r name version licence; do
    dir=$(sed -n "s|^$name $version ||p" "$work/places")
    set -- "$dir"/LICENSE-MIT*
    [ -f "$1" ] || set -- "$dir"/LICEN[CS]E* "$dir"/license* "$dir"/COPYING* "$dir"/NOTICE*
    found=
    for file; do
        [ -f "$file" ] || continue
        found=1
        sum=$(cksum < "$file" | tr ' ' -)
        cp "$file" "$work/texts/$sum"
        echo "$name $version ($licence)" >> "$work/users/$sum"
    done
    [ -n "$found" ] || echo "$name $version ($licence): its package has no text" >> "$work/without"
done < "$work/crates"

echo 'The programs of delta contain these crates, and the standard library of Rust (MIT OR Apache-2.0).'
# By the first crate that has it.
(cd "$work/users" && grep -m 1 '' ./*) | sort -t : -k 2 | while IFS=: read -r file _; do
    printf '\n%s\n\n' ------------------------------------------------------------------------
    cat "$work/users/$file"
    echo
    cat "$work/texts/$file"
done
[ ! -f "$work/without" ] || { echo && cat "$work/without"; }
