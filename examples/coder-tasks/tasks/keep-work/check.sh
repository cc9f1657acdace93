set -eu
[ "$(cat README.md)" = 'You will receive mail.' ]
cmp "$1/notes.txt" notes.txt
cmp "$1/draft.txt" draft.txt
[ "$(git rev-list --count HEAD)" = 1 ]
