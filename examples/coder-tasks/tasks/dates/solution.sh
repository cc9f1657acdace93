set -eu
python3 - <<'EOF'
import datetime
with open("iso.txt", "w") as out:
    for line in open("dates.txt"):
        try:
            day, month, year = map(int, line.split("."))
            print(datetime.date(year, month, day).isoformat(), file=out)
        except ValueError:
            print("invalid", file=out)
EOF
