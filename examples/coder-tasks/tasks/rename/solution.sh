set -eu
sed -i 's/\bfetch_rows\b/read_rows/g' lib/rows.py main.py doc/usage.md
