#!/bin/sh
# Runs whenever the run ends, even if it is interrupted.
set -eu
rm -rf "${CWD:?}/scratch"
