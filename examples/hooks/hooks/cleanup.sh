#!/bin/sh
# Runs at every end of the run, also when it is interrupted.
rm -rf "${CWD:?}/scratch"
