#!/bin/sh
# Installs delta from a release, or removes it again. It needs no root, asks nothing and changes only PREFIX. What
# failed or was killed can be repeated.
#
#   install.sh [--from PLACE] [--version X.Y.Z] [--sha256 SUM] [--prefix PREFIX]
#   install.sh --uninstall [--prefix PREFIX]
#
# PLACE is a URL or a directory with the tarballs of releases and their SHA256SUMS. PREFIX is ~/.local unless it is
# given. A tarball whose checksum is not that of SHA256SUMS is not unpacked. SHA256SUMS comes from the same PLACE:
# to trust neither, give the checksum that you got elsewhere with --sha256.
set -eu

# A release fills this in.
place=

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

usage() {
    echo "install.sh: $*; install.sh [--from PLACE] [--version X.Y.Z] [--sha256 SUM] [--prefix PREFIX] [--uninstall]" >&2
    exit 2
}

# fetch NAME: a file of the release, into the directory for the download.
fetch() {
    case $place in
    *://*)
        # From https to https only. wget cannot restrict redirects: there it follows none.
        protocols=http,https redirects=
        case $place in [Hh][Tt][Tt][Pp][Ss]:*) protocols=https redirects=0 ;; esac
        if command -v curl > /dev/null; then
            curl -fsSL --proto "=$protocols" --retry 2 -o "$work/$1" "${place%/}/$1" || fail "cannot get ${place%/}/$1"
        elif command -v wget > /dev/null; then
            wget -q ${redirects:+--max-redirect=0} -O "$work/$1" "${place%/}/$1" ||
                fail "cannot get ${place%/}/$1${redirects:+; install curl, if it is redirected or wget is not GNU}"
        else
            fail 'neither curl nor wget is installed; get the files yourself and give their directory with --from'
        fi
        ;;
    *) cp "$place/$1" "$work/$1" || fail "cannot read $place/$1" ;;
    esac
}

checksum() {
    if command -v sha256sum > /dev/null; then
        sha256sum "$1" | cut -d ' ' -f 1
    elif command -v shasum > /dev/null; then
        shasum -a 256 "$1" | cut -d ' ' -f 1
    else
        fail 'neither sha256sum nor shasum is installed: the download cannot be verified'
    fi
}

# The files and, with a slash at the end, directories of the installation, from PREFIX. No line is absolute or has "..".
listed() {
    [ ! -f "$list" ] || LC_ALL=C tr -d '\000' < "$list" |
        LC_ALL=C grep -v -e '^$' -e '^/' -e '^\.\.$' -e '^\.\./' -e '/\.\.$' -e '/\.\./' || true
}

# in_prefix COMMAND...: gives it the lines of stdin, paths from PREFIX, as arguments.
in_prefix() {
    tr '\n' '\0' | (CDPATH='' cd -- "$prefix/" && xargs -0 "$@" --)
}

# Those that an installation made and that are empty now.
remove_directories() {
    listed | grep '/$' | grep -vxF ./ | LC_ALL=C sort -r | in_prefix rmdir 2> /dev/null || true
}

uninstall() {
    [ -f "$list" ] || fail "there is no delta in ${prefix:-/} that this script has installed"
    # The list goes last: it says what is left to remove.
    listed | grep -v '/$' | in_prefix rm -f || fail "not all files could be removed from ${prefix:-/}; mend that, and run this again"
    remove_directories
    cp "$list" "$work/list"
    rm -f -- "$list" "$list.new"
    list=$work/list
    # Those that the list was in.
    remove_directories
    if listed | grep -qxF ./; then rmdir -- "$prefix" 2> /dev/null || true; fi
    echo "removed delta from ${prefix:-/}"
}

# Every directory that is not there yet, the outermost first, as lines that end in a slash.
missing_directories() {
    [ -d "$prefix" ] || echo ./
    (cd "$tree" && find . -type d) | sed 's|^\./||; /^\.$/d' | LC_ALL=C sort | while IFS= read -r dir; do
        [ -d "$prefix/$dir" ] || printf '%s/\n' "$dir"
    done
    [ -d "$prefix/lib" ] || echo lib/
    [ -d "$prefix/lib/delta-engine" ] || echo lib/delta-engine/
}

# replace FILE PLACE: by a rename, because the old file may be running.
replace() {
    [ ! -d "$2" ] || fail "$2 is a directory"
    rm -f -- "$2.new" && cp -P -- "$1" "$2.new" && mv -f -- "$2.new" "$2"
}

# give_up: without a list there is nothing but directories.
give_up() {
    rm -f -- "$list.new"
    [ -f "$list" ] || {
        list=$work/list
        remove_directories
    }
    exit 1
}

# Nothing is changed before the tarball is verified, unpacked and has printed its version.
install_release() {
    [ -n "$place" ] || usage 'give the place of the release with --from'
    machine=$(uname -m)
    [ "$(uname -s)" = Linux ] || fail "delta runs on Linux, not on $(uname -s)"
    fetch SHA256SUMS
    pattern=$(printf %s "$version" | sed 's/\./\\./g')
    pattern="delta-engine-${pattern:-[0-9][0-9.]*}-$machine-linux\.tar\.gz"
    line=$(grep -E "^[0-9a-f]{64}  $pattern\$" "$work/SHA256SUMS" | LC_ALL=C sort -V -t - -k 3 | tail -n 1) || true
    [ -n "$line" ] || fail "$place has no delta${version:+ $version} for $machine; build it from its source"
    name=${line#*  }
    sum=${wanted:-${line%% *}}
    fetch "$name"
    actual=$(checksum "$work/$name")
    [ "$actual" = "$sum" ] ||
        fail "$name: the SHA-256 checksum is $actual, not $sum; nothing was installed"
    mkdir "$work/unpacked"
    tar -C "$work/unpacked" -xzf "$work/$name" || fail "$name: cannot unpack it"
    tree=$work/unpacked/${name%.tar.gz}
    installed=$("$tree/bin/delta" -V) || fail "$name: its program does not run on this machine, or not in $work"

    (cd "$tree" && find . ! -type d) > "$work/files"
    # With the names that programs have until they are renamed.
    sed 's|^\./||' "$work/files" | sed '/^bin\//{p;s/$/.new/;}' | LC_ALL=C sort > "$work/new"
    listed | LC_ALL=C sort > "$work/old"
    LC_ALL=C comm -13 "$work/old" "$work/new" > "$work/added"
    LC_ALL=C comm -23 "$work/old" "$work/new" > "$work/gone"
    while IFS= read -r path; do
        if [ -e "$prefix/$path" ] || [ -L "$prefix/$path" ]; then
            fail "$prefix/$path is another program's; remove it, or give another --prefix"
        fi
    done < "$work/added"

    if [ -f "$list" ]; then
        begun=1
        grep -v '/$' "$work/gone" | in_prefix rm -f
        remove_directories
    fi
    missing_directories > "$work/list"
    listed | grep '/$' | while IFS= read -r dir; do
        [ ! -d "$prefix/$dir" ] || printf '%s\n' "$dir"
    done >> "$work/list"
    cat "$work/new" >> "$work/list"
    mkdir -p "$prefix/lib/delta-engine"
    # The list first: whatever an installation that was killed has put there can be removed.
    replace "$work/list" "$list" || give_up
    begun=1
    { echo bin/ && grep '/$' "$work/list"; } | in_prefix mkdir -p
    # tar unlinks an old file before it writes.
    if grep -v '^\./bin/' "$work/files" > "$work/data"; then
        tar -C "$tree" -cf "$work/data.tar" -T "$work/data"
        tar -C "$prefix/" -xof "$work/data.tar"
    fi
    for program in "$tree"/bin/*; do
        replace "$program" "$prefix/bin/${program##*/}"
    done
    begun=
    echo "installed $installed in ${prefix:-/}"
    case ":$PATH:" in
    *":$prefix/bin:"*) ;;
    *) echo "$prefix/bin is not in PATH: export PATH=\"$prefix/bin:\$PATH\"" ;;
    esac
}

main() {
    prefix=${HOME:+$HOME/.local} version='' wanted='' what=install_release begun=''
    while [ $# -gt 0 ]; do
        case $1 in
        --uninstall) what=uninstall ;;
        --from | --version | --sha256 | --prefix)
            [ $# -gt 1 ] || usage "$1 needs a value"
            case $1 in
            --from) place=$2 ;;
            --version)
                case $2 in
                '' | *[!0-9.]*) usage "--version is X.Y.Z, not '$2'" ;;
                esac
                version=$2
                ;;
            --sha256)
                printf '%s\n' "$2" | grep -qxE '[0-9a-f]{64}' || usage "--sha256 is 64 hexadecimal digits, not '$2'"
                wanted=$2
                ;;
            --prefix) prefix=$2 ;;
            esac
            shift
            ;;
        *) usage "unknown argument '$1'" ;;
        esac
        shift
    done
    case $prefix in
    /*) prefix=${prefix%/} ;;
    *) usage "--prefix is an absolute path, not '$prefix'" ;;
    esac
    list=$prefix/lib/delta-engine/installed
    umask 022
    work=$(mktemp -d)
    trap 'rm -rf "$work"
        [ -z "$begun" ] || echo "install.sh: not all is installed; run it again, or with --uninstall" >&2' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    "$what"
}

# The last line: a script that was cut off while it was downloaded does nothing.
main "$@"
