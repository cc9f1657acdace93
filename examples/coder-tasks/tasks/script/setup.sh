set -eu
mkdir -p in/sub
touch in/a.txt in/b.txt in/sub/c.txt in/x.md in/sub/y.md in/z.py in/README
