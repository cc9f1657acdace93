set -eu
mkdir -p lib doc
echo 'def fetch_rows(path):
    return open(path).read().splitlines()


def fetch_rows_async(path):
    return fetch_rows(path)' > lib/rows.py
echo 'from lib.rows import fetch_rows, fetch_rows_async

print(len(fetch_rows("data.txt")), len(fetch_rows_async("data.txt")))' > main.py
echo 'Call `fetch_rows(path)` to get the lines.' > doc/usage.md
printf 'a\nb\n' > data.txt
touch lib/__init__.py
