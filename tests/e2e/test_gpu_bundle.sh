#!/usr/bin/env bash
# What `make gpu-bundle` makes runs where there is nothing but the C and C++ libraries.
# release: what goes to another machine
# no-sanitizers: these would have to be there, too
# aside: it compiles
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" = 0 ] || {
	echo "needs root, for an empty root"
	exit 77
}
make --no-print-directory gpu-bundle >"$tmp/make.log" 2>&1 || fail "make gpu-bundle"
[ "$(du -sm "$BUILD/gpu" | cut -f 1)" -le 40 ] || fail "it is too large: $(du -sh "$BUILD/gpu")"

root=$tmp/root
mkdir -p "$root/lib64" "$root/lib" "$root/proc" "$root/dev" "$root/tmp"
cp -r "$BUILD/gpu" "$root/gpu"
cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"
for name in libc.so.6 libm.so.6 libdl.so.2 librt.so.1 libpthread.so.0 libresolv.so.2 libstdc++.so.6 libgcc_s.so.1; do
	path=$(ldconfig -p | awk -v name=$name '$1 == name && /x86-64/ { print $NF; exit }')
	[ -n "$path" ] || fail "this machine has no $name"
	cp -L "$path" "$root/lib/"
done

# With /proc: the linker looks there for where the program is.
# shellcheck disable=SC2016 # the inner shell's
bare() {
	unshare --mount sh -c 'mount -t proc proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot "$0" "$@"' "$root" "$@"
}
bare /gpu/winnowd --version >"$tmp/version.log" 2>&1 || fail "winnowd"
bare /gpu/winnow bench --local 2 --size 1M --density 0.1 --check --iters 2 >"$tmp/bench.log" 2>&1 || fail "winnow bench"
# It opens CUDA's driver at run time, which is not there.
[ ! -e "$root/gpu/device_worker" ] || refuses 77 'there is no GPU here' bare /gpu/device_worker describe=1
if [ -e "$root/gpu/winnow-cuda.so" ]; then
	bare /lib64/ld-linux-x86-64.so.2 --list /gpu/winnow-cuda.so >"$tmp/plugin.log" 2>&1 || fail "winnow-cuda.so"
	grep -q 'not found' "$tmp/plugin.log" && fail "winnow-cuda.so"
fi

# A library that is left out is missed.
rm "$root"/gpu/libssl*
bare /gpu/winnowd --version >"$tmp/version.log" 2>&1 && fail "nobody missed libssl"

# And its scripts, from anywhere, without the repository.
[ ! -e "$root/gpu/device_worker" ] || nvidia-smi -L >/dev/null 2>&1 || RESULTS=$tmp/results refuses 77 'check-gpu: there is no GPU here' "$root/gpu/tests/gpu/check.sh" "$root/gpu"
PYTHONDONTWRITEBYTECODE=1 DEVICE=cpu BUILD=$root/gpu /usr/bin/python3 "$root/gpu/tests/gpu/ddp_on_gpu.py" --help >"$tmp/torch.log" 2>&1 || grep -q "No module named 'torch'" "$tmp/torch.log" || fail "ddp_on_gpu.py"
exit 0
