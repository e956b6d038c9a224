#!/usr/bin/env bash
# What `make check-gpu` does with operations in streams, on the emulated GPU; and that it fails when it should.
. "$(dirname "$0")/lib.sh"
[ -x "$BUILD/tests/gpu/device_streams" ] || {
	echo "there are no kernels in this tree"
	exit 77
}

check() { # part..: into $tmp/check.out
	EMULATED=1 timeout 500 tests/gpu/check.sh "$BUILD" "$@" >"$tmp/check.out" 2>"$tmp/check.err"
}

check end-to-end order load deaths || fail "$(cat "$tmp/check.out" "$tmp/check.err")"
tail -n 1 "$tmp/check.out" | grep -qE '^[0-9]+ passed, 0 failed, 0 skipped$' || fail "$(tail -n 1 "$tmp/check.out")"
[ "$(grep -c '^ok' "$tmp/check.out")" -ge 20 ] || fail "too few tests: $(cat "$tmp/check.out")"

# A kernel that fails is seen by its worker, and the others end with it.
EMULATED_CUDA_FAIL=kernel:40=700 check load && fail "nobody saw that kernels fail"
tail -n 1 "$tmp/check.out" | grep -qE '^0 passed, 3 failed' || fail "$(cat "$tmp/check.out")"
grep -qE 'an illegal memory access was encountered|error 700 of the driver' "$tmp/check.out" || fail "$(cat "$tmp/check.out")"

# Impossible ones: nothing to check there, no such part.
refuses 1 'make gpu-bundle' env EMULATED= tests/gpu/check.sh "$tmp"
refuses 1 'make gpu-bundle' tests/gpu/bench.sh "$tmp"
EMULATED=1 tests/gpu/check.sh "$BUILD" everything >"$tmp/parts.out" 2>"$tmp/parts.err" && fail "a part that there is not"
grep -q "there is no part 'everything'" "$tmp/parts.err" || fail "$(cat "$tmp/parts.err")"
