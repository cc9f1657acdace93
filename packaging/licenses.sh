#!/bin/sh
# Writes the licences of what the programs are built from into FILE, each text once: packaging/licenses.sh FILE
# Needs cargo, and the sources of the crates, which a build has fetched.
set -eu
LC_ALL=C
export LC_ALL
mkdir -p "$(dirname "$1")"
out=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
cd "$(dirname "$0")/.."
platform=$(rustc -vV | sed -n 's/^host: //p')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Lines of: name, version, directory.
${CARGO:-cargo} metadata --format-version 1 --locked --filter-platform "$platform" > "$work/metadata"
# shellcheck disable=SC2016
grep -o '"manifest_path":"[^"]*"' "$work/metadata" | cut -d '"' -f 4 | tr '\n' '\0' |
    xargs -0 awk 'FNR == 1 { name = version = "" }
        !name && sub(/^name = "/, "") { sub(/".*/, ""); name = $0 }
        !version && sub(/^version = "/, "") { sub(/".*/, ""); version = $0; dir = FILENAME
            sub(/\/Cargo.toml$/, "", dir); print name, version, dir }' > "$work/places"

# Lines of: name, version, licence.
${CARGO:-cargo} tree --color never --no-dedupe --locked -e normal --target "$platform" --prefix none \
    -f '{p}|{l}' > "$work/tree"
sed -n 's/^\([^ ]*\) v\([^ |]*\)[^|]*|/\1 \2 /p' "$work/tree" | sort -u > "$work/all"
sed '/^delta-engine /d' "$work/all" > "$work/crates"

# One text of several to choose from is enough: that of MIT. Code from elsewhere has its own, further down.
texts() { # DIR LICENCE
    case $2 in
    *' AND '*) ;;
    *) find "$1" -maxdepth 1 -type f -name 'LICENSE-MIT*' | grep . && set -- "$1" '' -mindepth 2 ;;
    esac
    dir=$1
    shift 2
    find "$dir" "$@" -type f \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' \) ! -name '*.rs' | sort
}

mkdir "$work/texts" "$work/users"
: > "$work/without"
while read -r name version licence; do
    dir=$(sed -n "s|^$name $version ||p" "$work/places")
    [ -d "$dir" ] || {
        echo "packaging/licenses.sh: there is no source of $name $version" >&2
        exit 1
    }
    texts "$dir" "$licence" > "$work/files"
    [ -s "$work/files" ] || echo "$name $version ($licence): its package has no text" >> "$work/without"
    while IFS= read -r file; do
        sum=$(cksum < "$file" | tr ' ' -)
        cp "$file" "$work/texts/$sum"
        echo "$name $version ($licence)" >> "$work/users/$sum"
    done < "$work/files"
done < "$work/crates"

{
    echo 'The programs of delta are built from these crates, and contain the standard library of Rust (MIT OR Apache-2.0).'
    # By the first crate that has it.
    (cd "$work/users" && grep -m 1 '' ./*) | sort -t : -k 2 | while IFS=: read -r file _; do
        printf '\n%s\n\n' ------------------------------------------------------------------------
        uniq "$work/users/$file"
        echo
        cat "$work/texts/$file"
    done
    echo
    cat "$work/without"
} > "$out.new"
mv -f "$out.new" "$out"
