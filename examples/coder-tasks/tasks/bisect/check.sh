set -eu
[ "$(tr -d ' \n' < answer.txt)" = "$(git -C "$1" rev-parse main~2)" ]
[ "$(git symbolic-ref --short HEAD)" = main ]
git diff --quiet HEAD
