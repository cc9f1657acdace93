#!/bin/sh
# Serves as the model.
set -eu
exec python3 "$(dirname "$0")/model.py"
