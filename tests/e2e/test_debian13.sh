#!/usr/bin/env bash
# The tree in a fresh Debian 13, with nothing but git and make: the demo, as a new user would; then the unit tests and some seeds of
# the simulation, with that Debian's address and undefined-behaviour sanitizers.
# release: it installs a system
# no-sanitizers: it has a build of its own
# aside: it compiles
. "$(dirname "$0")/lib.sh"
if [ "$(id -u)" != 0 ] || ! unshare -m true 2>/dev/null; then
	echo "needs root, for a root folder with mounts of its own"
	exit 77
fi
# shellcheck disable=SC2016 # the inner shell's
DEMO_STEPS=10 timeout 2300 tests/debian.sh trixie "$BUILD" bash -ec '
	export SAN=address,undefined CFLAGS="-O1 -g1" UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
	make check-unit
	sim=build/san-address-undefined/tests/sim/sim
	make -j"$(nproc)" "$sim"
	"$sim" 1 40' >"$tmp/out" 2>&1 || fail "$(grep -v '^ok' "$tmp/out" | tail -n 40)"
grep -q '^Done in ' "$tmp/out" || fail "no demo: $(head -n 40 "$tmp/out")"
seen -E '^[1-9][0-9]+ passed, 0 failed, [0-9]+ skipped$' <"$tmp/out" || fail "$(tail -n 40 "$tmp/out")"
tail -n 1 "$tmp/out" | seen '^40 runs, 0 wrong' || fail "$(tail -n 40 "$tmp/out")"
rm -rf --one-file-system "$BUILD/debian-trixie"
