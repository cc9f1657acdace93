set -eu
python3 - <<'EOF'
import csv
seen = {}
for row in csv.DictReader(open("people.csv", newline="")):
    mail = row["email"].strip().lower()
    if mail and mail not in seen:
        seen[mail] = row["name"].strip()
with open("clean.csv", "w", newline="") as f:
    out = csv.writer(f)
    out.writerow(["name", "email"])
    out.writerows([name, mail] for mail, name in sorted(seen.items()))
EOF
