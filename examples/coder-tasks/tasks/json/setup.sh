set -eu
printf '{\n  "name": "demo",\n  "ports": [80, 443,],\n  "debug": True\n  "paths": {"log": "/var/log"}\n}\n' > config.json
