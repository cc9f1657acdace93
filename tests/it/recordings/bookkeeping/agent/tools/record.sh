#!/bin/sh
case $1 in receipts/*) ;; *)
    echo "$1 is no receipt. If all receipts are entered, call no tool: tell the grand total in one sentence." >&2
    exit 1 ;;
esac
[ -f "$1" ] || { echo "there is no file $1; next_receipt tells the name" >&2; exit 1; }
right=$(awk '/^[0-9]/ { sum += $1 } END { printf "%.2f", sum }' "$1")
if [ "$2" != "$right" ]; then
    echo "$2 is not the sum of $1; use add_up first" >&2
    exit 1
fi
grep -qs "^$1 " ledger.txt && { echo "$1 has been entered before; call next_receipt" >&2; exit 1; }
echo "$1 $2" >> ledger.txt
echo "Entered. Now call next_receipt."
