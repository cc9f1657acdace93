set -eu
for line in '10 0 0' '10 1 1' '10 10 1' '10 11 2' '1 5 5' '7 49 7'; do
    set -- $line
    [ "$(./pages.sh $1 $2)" = "$3" ]
done
