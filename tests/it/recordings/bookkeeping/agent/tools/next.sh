#!/bin/sh
# The first receipt that is not in the ledger.
left=0
for file in receipts/*.txt; do
    grep -qs "^$file " ledger.txt && continue
    left=$((left + 1))
    [ -n "$first" ] || first=$file
done
if [ "$left" = 0 ]; then
    awk '{ sum += $2 } END { printf "All receipts are entered. The grand total is %.2f. Call no tool any more: tell it in one sentence.\n", sum }' ledger.txt
else
    echo "$left left. Next: $first. Read it with read_file."
fi
