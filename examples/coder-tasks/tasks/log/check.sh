set -eu
[ "$(tr -d ' ' < answer.txt)" = 'r401
db-7.internal' ]
