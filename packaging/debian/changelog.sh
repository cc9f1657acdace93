#!/bin/sh
# Prints CHANGELOG.md as Debian's changelog, one entry for all of it: packaging/debian/changelog.sh VERSION
set -eu
cd "$(dirname "$0")/../.."
# The builder is the maintainer, as in devscripts(1).
maintainer="${DEBFULLNAME:-The delta authors} <${DEBEMAIL:-delta-engine@invalid.invalid}>"
date=$(LC_ALL=C date -u -R -d "@$(packaging/date.sh)")
printf 'delta-engine (%s) unstable; urgency=medium\n\n' "$1"
# Join each entry into one line, then wrap to Debian's width.
awk '/^- /{print ""} /^- |^  /{sub(/^ +/, ""); printf "%s ", $0} END{print ""}' CHANGELOG.md |
    fold -s -w 74 | sed -n 's/ *$//; /^- /s//  * /p; /^[^ ]/s//    &/p'
printf '\n -- %s  %s\n' "$maintainer" "$date"
