#!/bin/sh
# Prints LICENSE as Debian's copyright file.
set -eu
cd "$(dirname "$0")/../.."
printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n'
printf 'Upstream-Name: delta-engine\n\nFiles: *\n'
sed -n 's/^Copyright (c) /Copyright: /p' LICENSE
printf 'License: Expat\n\nLicense: Expat\n'
sed '1,/^Copyright/d' LICENSE | sed '1{/^$/d}; s/^$/./; s/^/ /'
