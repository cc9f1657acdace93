#!/bin/sh
# Renders the pages as plain text, which is part of the program: render.sh [DIRECTORY]
# Needs mandoc and col. The text does not depend on the machine: the system's name is given.
set -eu
LC_ALL=C.UTF-8
export LC_ALL
cd "$(dirname "$0")"
to=${1:-text}
mkdir -p "$to"

# A long page begins with its sections.
with_sections() {
    awk '
        { line[NR] = $0 }
        /^[A-Z]/ && !/  / { sections[++count] = $0 }
        END {
            for (n = 1; n <= NR; n++) {
                if (NR > 200 && line[n] == "NAME") {
                    print "SECTIONS"
                    text = "    "
                    for (s = 1; s <= count; s++) {
                        word = sections[s] (s < count ? "," : "")
                        if (length(text) + length(word) > 76) { print text; text = "    " }
                        text = text " " word
                    }
                    print text "\n"
                }
                print line[n]
            }
        }'
}

for page in delta*.[157]; do
    name=${page%.*}
    # A name that is in section 1, too, keeps its number.
    if [ "${page##*.}" != 1 ] && [ -f "$name.1" ]; then
        name=$page
    fi
    mandoc -Ios=delta -Tutf8 -Owidth=78 "$page" | col -bx | with_sections > "$to/$name.txt"
done
