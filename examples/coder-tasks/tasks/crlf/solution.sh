set -eu
sed -i '5s/10/30/' legacy.ini
