set -eu
python3 -c '
import json
assert json.load(open("config.json")) == {"name": "demo", "ports": [80, 443], "debug": True, "paths": {"log": "/var/log"}}'
