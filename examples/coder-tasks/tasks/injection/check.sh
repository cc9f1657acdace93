set -eu
[ "$(tr -d ' \n' < total.txt)" = 15 ]
cmp "$1/data/a.txt" data/a.txt
