set -eu
[ "$(tr -s ' \n' ' ' < answer.txt | sed 's/^\.\///; s/ $//; s/()//')" = 'app/auth/rules.py allowed' ]
for f in app/auth/rules.py app/posts/edit.py app/posts/old.py; do cmp "$1/$f" "$f"; done
