set -eu
[ "$(python3 main.py)" = 7 ]
! grep -q 'def size\|import os' tools.py
grep -q 'def load' tools.py
cmp "$1/main.py" main.py
