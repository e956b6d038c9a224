#!/usr/bin/env bash
# closure.sh ROOT STAGE PROGRAM.. - a file system ROOT with the programs of STAGE, what they load, and this system's libraries for that
#
# If STAGE was built with the dpdk data path, that too, with DPDK's drivers for the ports that docs/dpdk.md names.
set -euo pipefail
. "$(dirname "$0")/target.sh"
root=$1 stage=$2
shift 2
ports=(net_af_packet net_af_xdp net_memif net_tap net_virtio net_mlx5 net_ice net_i40e net_iavf)
mkdir -p "$root/etc" "$root/tmp"
chmod 1777 "$root/tmp"
printf 'root:x:0:0::/:\nwinnow:x:65532:65532::/:\n' >"$root/etc/passwd"
# A library goes to where the dynamic linker looks first; the linker itself to where the programs name it.
libraries_of() {
	loads "$1" | grep -v " $stage" | while read -r _ library; do
		install -D "$(realpath "$SYSROOT$library")" "$root$library"
	done
}

soname=$(cd "$stage" && echo usr/lib/*/libwinnow.so.*)
files=("$@" "/$soname")
[ ! -e "$stage/usr/lib/winnow/winnow-dpdk.so" ] || files+=(/usr/lib/winnow/winnow-dpdk.so /usr/lib/winnow/redirect.bpf.o)
for file in "${files[@]}"; do
	install -D "$stage$file" "$root$file"
	[ "${file##*.}" = o ] || libraries_of "$stage$file"
done
[ -e "$root/usr/lib/winnow" ] || exit 0

# DPDK opens all drivers in this folder; some are other drivers' libraries as well, so they are links to where the linker looks.
drivers=/$(cd "$SYSROOT/" && echo usr/lib/*/dpdk/pmds-*)
libraries=$(loads "$stage/usr/lib/winnow/winnow-dpdk.so" | sed -n 's|.* \(/.*\)/librte_eal.so.*|\1|p')
mkdir -p "$root$drivers"
for driver in mempool_ring "${ports[@]}"; do
	library=$libraries/$(cd "$SYSROOT$libraries" && echo "librte_$driver.so".* | cut -d' ' -f1)
	libraries_of "$SYSROOT$library"
	install -D "$(realpath "$SYSROOT$library")" "$root$library"
	ln -s "$library" "$root$drivers/librte_$driver.so"
done
