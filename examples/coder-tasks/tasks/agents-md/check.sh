set -eu
mkdir -p elsewhere
cp numbers.py elsewhere/own_numbers.py
python3 -c '
import sys
sys.path.insert(0, "elsewhere")
from own_numbers import double, half
assert double(4) == 8 and half(4) == 2 and double.__doc__'
[ "$(sort CHANGES.txt)" = 'added double
added half' ]
