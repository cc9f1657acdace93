set -eu
printf 'test: hello\n\t./hello | grep -qx hello\n\nhello: hello.sh\n    cp hello.sh hello\n    chmod +x hello\n' > Makefile
printf '#!/bin/sh\necho hello\n' > hello.sh
