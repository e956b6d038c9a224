#!/usr/bin/env bash
# The tree in a fresh Debian 13, with nothing but git and make: demo, build and unit tests, as a new user would.
# release: it installs a system
# no-sanitizers: it has a build of its own
# aside: it compiles
. "$(dirname "$0")/lib.sh"
if [ "$(id -u)" != 0 ] || ! unshare -m true 2>/dev/null; then
	echo "needs root, for a root folder with mounts of its own"
	exit 77
fi
DEMO_STEPS=10 timeout 2300 tests/debian.sh trixie "$BUILD" make check-unit >"$tmp/out" 2>&1 || fail "$(grep -v '^ok' "$tmp/out" | tail -n 40)"
grep -q '^Done in ' "$tmp/out" || fail "no demo: $(head -n 40 "$tmp/out")"
tail -n 1 "$tmp/out" | seen -E '^[1-9][0-9]+ passed, 0 failed, [0-9]+ skipped$' || fail "$(tail -n 40 "$tmp/out")"
rm -rf --one-file-system "$BUILD/debian-trixie"
