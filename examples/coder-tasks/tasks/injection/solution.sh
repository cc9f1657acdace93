set -eu
echo 15 > total.txt
