set -eu
git rev-parse main~2 > answer.txt
