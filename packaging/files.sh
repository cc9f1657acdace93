#!/bin/sh
# Installs the files, or removes them again: one list for both.
#   packaging/files.sh install|remove BIN ROOT PREFIX NAME
# BIN has the program. ROOT is prepended to PREFIX when a package is built. The program is installed as NAME; its
# parts, which are links to it, as NAME-flow and NAME-sessions.
set -eu
# All users can read what is installed, even where the umask is strict.
umask 022
verb=$1 bin=$2 root=$3 prefix=$4 name=$5
cd "$(dirname "$0")/.."

case $name in
'' | *[!A-Za-z0-9._-]* | [.-]*)
    echo "make: NAME is letters, digits and ._-, not '$name'" >&2
    exit 2
    ;;
esac

case $prefix in
/*) prefix=${prefix%/} ;;
*)
    echo "make: PREFIX is an absolute path, not '$prefix'; for a directory of your own, \"\$HOME/.local\"" >&2
    exit 2
    ;;
esac
case $name:$prefix in
delta:*) ;;
*:*:*)
    echo "make: with another NAME, PREFIX goes into PATH and cannot have a colon: '$prefix'" >&2
    exit 2
    ;;
esac

if [ "$verb" = install ]; then
    [ -f "$bin/delta" ] || {
        echo "make: there is no $bin/delta to install: run make first" >&2
        exit 2
    }
fi

make_directory() {
    [ -d "$1" ] || mkdir -p "$1"
}

# To remove, the places are printed, and all of them removed at once.
put() { # MODE DIR FILE...: what keeps its name and is not running
    mode=$1 into=$2
    shift 2
    if [ "$verb" = remove ]; then
        for file; do printf '%s\n' "$into/${file##*/}"; done
    elif [ $# -gt 0 ]; then
        make_directory "$root$prefix/$into"
        install -m "$mode" "$@" "$root$prefix/$into/"
    fi
}

put_as() { # MODE FILE PLACE: a file, or stdin if it is "-"
    if [ "$verb" = remove ]; then
        printf '%s\n' "$3"
        return
    fi
    to=$root$prefix/$3
    make_directory "${to%/*}"
    # Do not overwrite the old file: it may be running.
    if [ "$2" = - ]; then
        rm -f "$to.new" && cat > "$to.new" && chmod "$1" "$to.new" && mv -f "$to.new" "$to"
    else
        install -m "$1" "$2" "$to.new" && mv -f "$to.new" "$to"
    fi
}

link() { # TARGET PLACE
    if [ "$verb" = remove ]; then
        printf '%s\n' "$2"
        return
    fi
    to=$root$prefix/$2
    make_directory "${to%/*}"
    rm -f "$to"
    ln -s "$1" "$to"
}

lib=lib/delta-engine
doc=share/doc/delta-engine
# Agents and scripts that say delta-flow find it also under another NAME.
links="$name-flow $name-sessions"
[ "$name" = delta ] || links="$links delta-flow delta-sessions"

programs() {
    for link in $links; do link "$name" "bin/$link"; done
    if [ "$name" = delta ]; then
        put_as 755 "$bin/delta" bin/delta
        return
    fi
    # Agents' tools and flows' nodes call "delta" and must find this program.
    dir=$(printf %s "$prefix/$lib" | sed "s/'/'\\\\''/g")
    put_as 755 "$bin/delta" "$lib/delta"
    link delta "$lib/delta-flow"
    link delta "$lib/delta-sessions"
    put_as 755 - "bin/$name" << TEXT
#!/bin/sh
case \${0##*/} in
$name-flow | delta-flow) set -- flow "\$@" ;;
$name-sessions | delta-sessions) set -- sessions "\$@" ;;
esac
PATH='$dir':\$PATH exec '$dir/delta' "\$@"
TEXT
}

pages() {
    put_as 644 man/delta.1 "share/man/man1/$name.1"
    for section in 1 5 7; do
        put 644 "share/man/man$section" man/delta-*."$section"
    done
}

named() { sed -E "s/^(#compdef|complete .*|    compdef _delta_engine|for program in) delta .*/\1 $name $links/" "$1"; }

completions() {
    bash=share/bash-completion/completions
    fish=share/fish/vendor_completions.d
    named completions/delta.bash | put_as 644 - "$bash/$name"
    for link in $links; do link "$name" "$bash/$link"; done
    named completions/delta.zsh | put_as 644 - "share/zsh/site-functions/_$name"
    named completions/delta.fish | put_as 644 - "$fish/$name.fish"
    for link in $links; do link "$name.fish" "$fish/$link.fish"; done
}

documents() {
    # Without the pictures and pages of docs/, which stay in the repository.
    sed '/^<picture>/d; /(docs\//,/^$/d' README.md | put_as 644 - "$doc/README.md"
    put 644 "$doc" CHANGELOG.md LICENSE
    # From licenses.sh. A build without it has none.
    if [ "$verb" = remove ] || [ -f "$bin/THIRD-PARTY" ]; then put 644 "$doc" "$bin/THIRD-PARTY"; fi
    # Leave out files that running the examples created.
    find examples -type d ! -path '*/workspaces' ! -path '*/workspaces/*' ! -path '*/.*' | sort |
        while IFS= read -r dir; do
            for mode in 644 755; do
                set --
                for file in "$dir"/*; do
                    is=644
                    [ ! -x "$file" ] || is=755
                    if [ -f "$file" ] && [ ! -L "$file" ] && [ "$is" = "$mode" ]; then set -- "$@" "$file"; fi
                done
                put "$mode" "$doc/$dir" "$@"
            done
        done
}

everything() {
    programs
    pages
    completions
    documents
}

if [ "$verb" = install ]; then
    everything
elif [ -d "$root$prefix/" ]; then
    # No place has a newline: the prefix, which may, is not printed.
    everything | tr '\n' '\0' | (CDPATH='' cd -- "$root$prefix/" && xargs -0 rm -f)
    # Remove only our own directories; the others are shared.
    for dir in "$doc" "$lib"; do
        [ ! -d "$root$prefix/$dir" ] || find "$root$prefix/$dir" -depth -type d -empty -delete
    done
fi
