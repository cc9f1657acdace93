#!/bin/sh
# Renders the pages as plain text, which is part of the program: render.sh [DIRECTORY]
# Needs mandoc and col. The text does not depend on the machine: the system's name is given.
set -eu
LC_ALL=C.UTF-8
export LC_ALL
cd "$(dirname "$0")"
to=${1:-text}
mkdir -p "$to"
for page in delta*.[157]; do
    name=${page%.*}
    # A name that is in section 1, too, keeps its number.
    if [ "${page##*.}" != 1 ] && [ -f "$name.1" ]; then
        name=$page
    fi
    mandoc -Ios=delta -Tutf8 -Owidth=78 "$page" | col -bx > "$to/$name.txt"
done
