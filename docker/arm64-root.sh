#!/usr/bin/env bash
# arm64-root.sh FOLDER - Debian's headers and libraries for 64-bit Arm, unpacked into FOLDER: what `make CROSS=aarch64-linux-gnu`
# builds against, and what qemu runs the result with. Nothing of it is installed on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
. docker/debian.sh
root=$1
needs=$(sed -n 's/^arm64: //p' docker/packages.txt)
[ "$(cat "$root/made" 2>/dev/null)" != "$needs" ] || exit 0
rm -rf --one-file-system "$root" "$root.list"
mkdir -p "$(dirname "$root")"
debian_sources "$(debian_codename)" >"$root.list"
mmdebstrap --quiet --variant=extract --architectures=arm64 --include="${needs// /,}" "$(debian_codename)" "$root" "$root.list"
rm "$root.list"
echo "$needs" >"$root/made"
