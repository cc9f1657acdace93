set -eu
cp "$1/settings.py" expected
awk '/"mail"/ { m = 1 } m && /retries/ { sub(/3/, "5"); m = 0 } { print }' "$1/settings.py" | cmp - settings.py
