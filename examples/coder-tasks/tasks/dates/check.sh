set -eu
[ "$(cat iso.txt)" = '2024-02-01
2024-02-29
invalid
1999-12-31
invalid
invalid' ]
