#!/usr/bin/env bash
# arm64-root.sh FOLDER [GROUP..] - Debian's headers and libraries for 64-bit Arm, unpacked into FOLDER: what
# `make CROSS=aarch64-linux-gnu` builds against, and what qemu runs the result with. Nothing of it is installed on this machine.
#
# GROUP.. of packages.txt come in addition: dpdk for that data path. FOLDER/DEBIAN says which package of which version has which
# symbols of which library, for the dependencies of our own package.
set -euo pipefail
cd "$(dirname "$0")/.."
. docker/debian.sh
root=$1
needs=$(for group in arm64 "${@:2}"; do sed -n "s/^$group: //p" docker/packages.txt; done | xargs)
made=" $(cat "$root/DEBIAN/made" 2>/dev/null || true) " lacks=
for package in $needs; do [[ $made == *" $package "* ]] || lacks=yes; done
[ -n "$lacks" ] || exit 0
rm -rf --one-file-system "$root" "$root.list"
mkdir -p "$(dirname "$root")"
# shellcheck disable=SC2016 # the hook's own
debian_unpack "$root" arm64 "$needs" --extract-hook='
	mkdir "$1/DEBIAN"
	for package in "$1"/var/cache/apt/archives/*.deb; do
		for list in symbols shlibs; do dpkg-deb -I "$package" $list >>"$1/DEBIAN/$list" 2>/dev/null || true; done
	done'
# The linker takes an absolute link for one to this machine's file, misses that, and links libm.a and libcap.a in.
find "$root" -lname '/*' | while read -r link; do ln -sfnr "$root$(readlink "$link")" "$link"; done
echo "$needs" >"$root/DEBIAN/made"
