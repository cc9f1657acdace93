#!/bin/sh
# Moves what Debian keeps elsewhere than "make install" does: packaging/debian/places.sh TREE
set -eu
share=$1/usr/share
# The changelog and the license have their own forms.
rm "$share/doc/delta-engine/CHANGELOG.md" "$share/doc/delta-engine/LICENSE"
# Installed into /etc by postinst, where AppArmor can read it.
mkdir -p "$share/delta-engine/apparmor"
install -m 644 packaging/apparmor/delta "$share/delta-engine/apparmor/"
mkdir -p "$share/zsh/vendor-completions"
mv "$share/zsh/site-functions/_delta" "$share/zsh/vendor-completions/"
rmdir "$share/zsh/site-functions"
