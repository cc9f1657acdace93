#!/bin/sh
# Installs MCP servers from npm and PyPI to try delta with: install.sh DIR
set -eu
dir=${1:?usage: install.sh DIR}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$dir"
cd "$dir"
npm install --silent --no-fund --no-audit @modelcontextprotocol/server-everything \
    @modelcontextprotocol/server-filesystem @modelcontextprotocol/server
python3 -m venv venv
venv/bin/pip install --quiet mcp mcp-server-time
cp "$here/servers/clock.py" "$here/servers/clock.mjs" .
cat <<TEXT
Now, in the directory of an agent:
  delta mcp import everything -- node $PWD/node_modules/@modelcontextprotocol/server-everything/dist/index.js
  delta mcp import files -- node $PWD/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js /tmp
  delta mcp import time -- $PWD/venv/bin/mcp-server-time
  delta mcp import clock -- $PWD/venv/bin/python $PWD/clock.py
  delta mcp import clock-ts -- node $PWD/clock.mjs
TEXT
