#!/bin/sh
# Installs a package in a clean root, tries it and removes it: packaging/try.sh deb|rpm|tarball PACKAGE BASE
# BASE is a directory with a system, as debootstrap makes it; nothing in it is changed. Needs root. There is no network
# in the root. Fails if anything is left outside of the package manager's records.
set -eu
kind=$1 package=$2 base=$3
here=$(cd "$(dirname "$0")" && pwd)
if [ "${DELTA_TRY_INSIDE:-}" = '' ]; then
    DELTA_TRY_INSIDE=1 exec unshare --mount --net --pid --fork "$here/try.sh" "$@"
fi
work=$(mktemp -d)
trap 'umount -R "$work/root" "$work" 2> /dev/null || umount -l "$work"; rmdir "$work"' EXIT
mount -t tmpfs tmpfs "$work"
root=$work/root
mkdir "$root" "$work/upper" "$work/work"
mount -t overlay overlay -o "lowerdir=$base,upperdir=$work/upper,workdir=$work/work" "$root"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
# The program under test, and what tries it, beside the root and not in it.
mkdir "$work/bench" "$root/bench"
cp "$package" "$(dirname "$package")/SHA256SUMS" "$here/smoke.sh" "$here/install.sh" "$work/bench/" 2> /dev/null ||
    cp "$package" "$here/smoke.sh" "$here/install.sh" "$work/bench/"
mount --bind "$work/bench" "$root/bench"
name=$(basename "$package")

# inside COMMAND…: as root; as a user with a HOME: inside_user.
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=/tmp LC_ALL=C.UTF-8 "$@"; }
inside_user() {
    chroot --userspec=1000:1000 "$root" env -i HOME=/home/user PATH=/home/user/.local/bin:/usr/bin:/bin LC_ALL=C.UTF-8 "$@"
}
files() {
    (cd "$root" && find . -xdev \( -path ./bench -o -path ./var/lib/dpkg -o -path ./var/lib/rpm -o -path ./root/.rpmdb \
        -o -path ./var/log \
        -o -path ./var/cache -o -path ./proc -o -path ./dev \) -prune -o -type d -printf '%p %m\n' -o -printf '%p %m %s\n' | sort)
}
mkdir -p "$root/home/user" && chown 1000:1000 "$root/home/user"
rpm --root "$root" --initdb 2> /dev/null || true
files > "$work/before"
start=$(date +%s%N)
case $kind in
deb) inside dpkg -i "/bench/$name" > "$work/log" 2>&1 || { cat "$work/log" >&2 && exit 1; } ;;
rpm) rpm --root "$root" --nodeps -i "$package" ;;
tarball) inside_user sh /bench/install.sh --from /bench ;;
*) echo "try.sh: deb, rpm or tarball, not '$kind'" >&2 && exit 2 ;;
esac
echo "$name: installed in $((($(date +%s%N) - start) / 1000000)) ms"
files > "$work/installed"
echo "$name: $(($(wc -l < "$work/installed") - $(wc -l < "$work/before"))) files and directories"
case $kind in
tarball)
    inside_user sh /bench/smoke.sh /home/user/.local/share/doc/delta-engine/examples
    inside_user sh /bench/install.sh --uninstall
    ;;
deb)
    inside sh /bench/smoke.sh /usr/share/doc/delta-engine/examples
    inside dpkg -P delta-engine > "$work/log" 2>&1 || { cat "$work/log" >&2 && exit 1; }
    ;;
rpm)
    inside sh /bench/smoke.sh /usr/share/doc/delta-engine/examples
    rpm --root "$root" --nodeps -e delta-engine
    ;;
esac
files > "$work/after"
diff "$work/before" "$work/after" || { echo "$name: the files above are left" >&2 && exit 1; }
echo "$name: removed without a trace"
