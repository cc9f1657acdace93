set -eu
sed -i 's/^    /\t/' Makefile
