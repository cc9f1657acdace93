#!/bin/sh
# Installs the files, or removes them again: one list for both.
#   packaging/files.sh install|remove BIN ROOT PREFIX NAME
# BIN has the programs. ROOT is prepended to PREFIX when a package is built. The program is installed as NAME.
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
    for program in delta delta-flow delta-sessions; do
        [ -f "$bin/$program" ] || {
            echo "make: there is no $bin/$program to install: run make first" >&2
            exit 2
        }
    done
fi

put() { # MODE FILE PLACE: a file, or stdin if it is "-"
    to=$root$prefix/$3
    if [ "$verb" = remove ]; then
        rm -f "$to"
        return
    fi
    mkdir -p "${to%/*}"
    if [ "$2" = - ]; then
        cat > "$to.new" && chmod "$1" "$to.new" && mv -f "$to.new" "$to"
    else
        # Do not overwrite the old file: it may be running.
        install -m "$1" "$2" "$to.new" && mv -f "$to.new" "$to"
    fi
}

link() { # TARGET PLACE
    to=$root$prefix/$2
    rm -f "$to"
    if [ "$verb" = install ]; then
        mkdir -p "${to%/*}"
        ln -s "$1" "$to"
    fi
}

lib=lib/delta-engine
put 755 "$bin/delta-sessions" bin/delta-sessions
if [ "$name" = delta ]; then
    put 755 "$bin/delta" bin/delta
    put 755 "$bin/delta-flow" bin/delta-flow
else
    # Agents' tools and flows' nodes call "delta" and must find this program.
    dir=$(printf %s "$prefix/$lib" | sed "s/'/'\\\\''/g")
    for program in delta delta-flow; do
        place=$name
        [ "$program" = delta ] || place=$program
        put 755 "$bin/$program" "$lib/$program"
        put 755 - "bin/$place" << TEXT
#!/bin/sh
PATH='$dir':\$PATH exec '$dir/$program' "\$@"
TEXT
    done
fi

for page in man/*.[157]; do
    place=${page#man/}
    [ "$place" != delta.1 ] || place=$name.1
    put 644 "$page" "share/man/man${page##*.}/$place"
done

named() { sed -E "s/^(#compdef|complete .*|    compdef _delta_engine) delta( |$)/\1 $name\2/" "$1"; }
bash=share/bash-completion/completions
fish=share/fish/vendor_completions.d
named completions/delta.bash | put 644 - "$bash/$name"
link "$name" "$bash/delta-flow"
link "$name" "$bash/delta-sessions"
named completions/delta.zsh | put 644 - "share/zsh/site-functions/_$name"
named completions/delta.fish | put 644 - "$fish/$name.fish"
link "$name.fish" "$fish/delta-flow.fish"
link "$name.fish" "$fish/delta-sessions.fish"

doc=share/doc/delta-engine
for file in README.md CHANGELOG.md LICENSE; do
    put 644 "$file" "$doc/$file"
done
# Leave out files that running the examples created.
find examples -type f ! -path '*/workspaces/*' ! -path '*/.*' | sort | while IFS= read -r file; do
    mode=644
    [ ! -x "$file" ] || mode=755
    put "$mode" "$file" "$doc/$file"
done
if [ "$verb" = remove ]; then
    # Remove only our own directories; the others are shared.
    for dir in "$doc" "$lib"; do
        [ ! -d "$root$prefix/$dir" ] || find "$root$prefix/$dir" -depth -type d -empty -delete
    done
fi
