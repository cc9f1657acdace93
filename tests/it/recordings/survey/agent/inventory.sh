#!/bin/sh
echo "There are $(ls stations | wc -l | tr -d ' ') files in stations/."
