set -eu
printf '#!/bin/sh\necho $((($2 + $1 - 1) / $1))\n' > pages.sh
