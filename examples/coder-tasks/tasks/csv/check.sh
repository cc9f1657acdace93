set -eu
python3 - <<'EOF'
import csv
with open("clean.csv", newline="") as f:
    rows = list(csv.reader(f))
assert rows == [["name", "email"], ["Adam", "adam@example.org"], ["Lee, Kim", "kim@example.org"],
                ["Zoe", "zoe@example.org"]], rows
EOF
cmp "$1/people.csv" people.csv
