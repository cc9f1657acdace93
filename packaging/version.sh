#!/bin/sh
# Prints the version in Cargo.toml.
cd "$(dirname "$0")/.." && sed -n '/^version = "\(.*\)"/{s//\1/p;q}' Cargo.toml
