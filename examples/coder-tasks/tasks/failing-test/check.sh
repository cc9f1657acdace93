set -eu
git diff --no-index --quiet "$1/test_stats.py" test_stats.py
python3 -c '
from stats import median
assert median([4, 1, 3, 2]) == 2.5 and median([7]) == 7 and median([5, 1, 3]) == 3 and median([1, 2]) == 1.5'
