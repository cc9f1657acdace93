#!/bin/sh
case $1 in receipts/*) ;; *)
    echo "$1 is no receipt. If all receipts are entered, call no tool: tell the grand total in one sentence." >&2
    exit 1 ;;
esac
[ -f "$1" ] || { echo "there is no file $1; next_receipt tells the name" >&2; exit 1; }
awk -v file="$1" '/^[0-9]/ { sum += $1 } END { printf "%.2f is the sum of %s. Enter it with record.\n", sum, file }' "$1"
