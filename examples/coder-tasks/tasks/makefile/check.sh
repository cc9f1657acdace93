set -eu
rm -f hello
make -s test
cmp "$1/hello.sh" hello.sh
grep -q 'grep -qx hello' Makefile
