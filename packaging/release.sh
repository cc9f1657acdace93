#!/bin/sh
# Cuts a release: packaging/release.sh VERSION URL OUT [--dry-run]
# Sets the version, cuts CHANGELOG.md, makes OUT/delta-engine-VERSION.tar.gz and fills the templates with its checksum
# and the URL where the files of releases are. Then it commits and tags that; nothing is pushed. All work is done in a
# copy: if anything fails, and with --dry-run, the repository is as it was.
set -eu
umask 022
version=$1 url=${2%/} out=$3 mode=${4:-}
cd "$(dirname "$0")/.."
refuse() {
    echo "make release: $*" >&2
    exit 1
}

case $version in
*[!0-9.]*) refuse "VERSION is X.Y.Z, not '$version'" ;;
esac
printf '%s\n' "$version" | grep -qxE '(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}' ||
    refuse "VERSION is X.Y.Z, not '$version'"
case $url in
https://?* | http://127.0.0.1*) ;;
*) refuse "URL is where the files of releases are, https://…, not '$url'" ;;
esac
case $url in
*[!A-Za-z0-9._~:/%+-]*) refuse "URL has a character that the templates cannot hold: '$url'" ;;
esac
changed=$(git status --porcelain) || refuse 'this is no git repository'
[ -z "$changed" ] || refuse "the tree is dirty; commit or remove: $(printf %s "$changed" | cut -c 4- | tr '\n' ' ')"
! git rev-parse -q --verify "refs/tags/v$version" > /dev/null || refuse "there is a tag v$version already"
old=$(packaging/versions.sh) || refuse 'the files above do not name one version'
[ "$(printf '%s\n' "$old" "$version" | sort -V | tail -n 1)" = "$version" ] ||
    refuse "VERSION $version is older than $old in Cargo.toml"
! grep -q "^## $version - " CHANGELOG.md || refuse "CHANGELOG.md has a date for $version: it has been released"

mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
copy=$work/copy
git clone -q --shared . "$copy"

today=$(date -u +%Y-%m-%d)
entries=$(sed -n '/^## Unreleased$/,/^## [0-9]/{/^- /p;}' CHANGELOG.md)
if grep -qx "## $version" CHANGELOG.md; then
    [ -z "$entries" ] || refuse "CHANGELOG.md has lines under Unreleased; move them to $version, or release another version"
    sed -i "s/^## $version\$/& - $today/" "$copy/CHANGELOG.md"
else
    [ -n "$entries" ] || refuse 'CHANGELOG.md has nothing under Unreleased'
    sed -i "s/^## Unreleased\$/&\n\n## $version - $today/" "$copy/CHANGELOG.md"
fi
sed -i "1,/^version = /s/^version = .*/version = \"$version\"/" "$copy/Cargo.toml"
sed -i "/^name = \"delta-engine\"\$/{n;s/.*/version = \"$version\"/;}" "$copy/Cargo.lock"
sed -i "s/^delta $old\$/delta $version/" "$copy/README.md"
"$copy/packaging/versions.sh" > /dev/null

git -C "$copy" add -u
archive=$out/delta-engine-$version.tar.gz
git -C "$copy" archive --format=tar --prefix="delta-engine-$version/" --mtime="$today 00:00 UTC" \
    "$(git -C "$copy" write-tree)" | gzip -9n > "$archive"
sum=$(sha256sum "$archive" | cut -d ' ' -f 1)
for template in "$copy"/packaging/templates/* "$copy"/packaging/acp/*; do
    sed "s|@VERSION@|$version|g; s|@URL@|$url|g; s|@SHA256@|$sum|g" "$template" > "$out/${template##*/}"
done
sed "s|^place=\$|place=$url|" packaging/install.sh > "$out/install.sh"
chmod 755 "$out/install.sh"
"$copy/packaging/sums.sh" "$out"

git -C "$copy" --no-pager diff --cached --stat
if [ "$mode" = --dry-run ]; then
    echo "dry run: nothing is committed; the files are in $out"
    exit
fi
# Who commits, and whether it is signed, may be said in the repository's own settings.
for key in user.name user.email user.signingKey commit.gpgSign tag.gpgSign gpg.format gpg.program; do
    value=$(git config "$key") || continue
    git -C "$copy" config "$key" "$value"
done
git -C "$copy" commit -q -m "Release $version"
git -C "$copy" tag -a "v$version" -m "delta $version"
git fetch -q "$copy" tag "v$version"
git merge -q --ff-only "v$version" || {
    git tag -d "v$version" > /dev/null
    refuse 'the branch cannot be moved to the commit of the release'
}
echo "committed and tagged v$version; the files are in $out. Build the packages, then: git push --follow-tags"
