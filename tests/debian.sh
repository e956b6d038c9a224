#!/usr/bin/env bash
# debian.sh SUITE BUILD [COMMAND..] - the tree, as a clone has it, in a fresh Debian SUITE with nothing but git and make:
# `make demo`, then `make check` or COMMAND, as a new user would. Root. The Debian stays in BUILD/debian-SUITE.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. docker/debian.sh
export DEMO_STEPS=${DEMO_STEPS:-}
suite=$1
root=$PWD/$2/debian-$suite
shift 2
[ $# -gt 0 ] || set -- make check
[ "$(id -u)" = 0 ] || {
	echo "needs root, for a root of its own"
	exit 77
}
docker/install-packages.sh container || exit 1
if [ ! -e "$root/made" ]; then
	rm -rf --one-file-system "$root"
	mkdir -p "$root"
	debian_sources "$suite" >"$root.list"
	mmdebstrap --quiet --variant=minbase --include=ca-certificates,git,make --dpkgopt=force-unsafe-io "$suite" "$root" "$root.list" || exit 1
	rm "$root.list"
	touch "$root/made"
fi
rm -rf "$root/root/winnow"
mkdir "$root/root/winnow"
git ls-files -co --exclude-standard -z | xargs -0 cp --parents -t "$root/root/winnow"
git -C "$root/root/winnow" init -q
git -C "$root/root/winnow" add -A
# shellcheck disable=SC2016 # the inner shell's
# Mounts of its own, which end with it; a root that is pivoted, not only changed, since containers are to run in it.
exec unshare --mount --propagation private bash -c '
	mount --bind "$0" "$0" && mount -t proc proc "$0/proc" && mount --rbind /sys "$0/sys" && mount --rbind /dev "$0/dev" &&
		mount -t tmpfs tmpfs "$0/run" && mount -t tmpfs tmpfs "$0/tmp" && cd "$0" && pivot_root . mnt && umount -l /mnt &&
		cd /root/winnow && exec env -i DEMO_STEPS="$DEMO_STEPS" HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
			bash -c '\''make demo && "$@"'\'' run "$@"' "$root" "$@"
