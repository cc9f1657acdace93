set -eu
! grep -rnw fetch_rows . --include=*.py --include=*.md
grep -q 'read_rows(path)' doc/usage.md
grep -q 'def fetch_rows_async' lib/rows.py
[ "$(python3 main.py)" = '2 2' ]
