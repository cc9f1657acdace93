# Fails unless add.sh adds.
expect() {
    sum=$(sh add.sh "$1" "$2")
    [ "$sum" = "$3" ] || { echo "add.sh $1 $2 prints $sum, not $3"; exit 1; }
}
expect 0 0 0
expect 2 3 5
