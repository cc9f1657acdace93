set -eu
printf 'r401\ndb-7.internal\n' > answer.txt
