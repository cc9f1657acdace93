set -eu
sed -i 's/443,\]/443]/; s/True/true,/' config.json
