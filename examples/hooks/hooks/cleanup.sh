#!/bin/sh
# Runs at every end of the run, also when it is interrupted.
set -eu
rm -rf "${CWD:?}/scratch"
