#!/usr/bin/env bash
# What `make check-gpu` does, on the emulated GPU; and that it fails when it should.
# release: tests of a tool
# no-sanitizers: test_gpu.sh runs these programs with them
# aside: it computes
. "$(dirname "$0")/lib.sh"

check() { # part..: into $tmp/check.out
	EMULATED=1 RESULTS=$tmp/results timeout 500 tests/gpu/check.sh "$BUILD" "$@" >"$tmp/check.out" 2>"$tmp/check.err"
}

check staging end-to-end || fail "$(cat "$tmp/check.out" "$tmp/check.err")"
tail -n 1 "$tmp/check.out" | seen -E '^10 passed, 0 failed, 0 skipped' || fail "$(tail -n 1 "$tmp/check.out")"
[ "$(grep -cE '^\| (native|fixed32) ' "$tmp/check.out")" = 24 ] || fail "staging has too few rows: $(cat "$tmp/check.out")"
tar -tzf "$tmp/results.tar.gz" | seen 'staging$' || fail "results are not collected"

# A kernel that fails is seen by its worker, and by the bench; few operations may do without one.
EMULATED_CUDA_FAIL=kernel:40=700 check staging end-to-end && fail "nobody saw that kernels fail"
tail -n 1 "$tmp/check.out" | seen -E '^[0-3] passed, ([7-9]|10) failed' || fail "$(cat "$tmp/check.out")"
grep -q 'an illegal memory access was encountered' "$tmp/check.out" || fail "$(cat "$tmp/check.out")"

# Impossible ones: nothing to check there, no such part.
refuses 1 'make gpu-bundle' env EMULATED= DEVICE=cpu RESULTS="$tmp/results" tests/gpu/check.sh "$tmp"
refuses 2 "there is no part 'everything'" env EMULATED=1 RESULTS="$tmp/results" tests/gpu/check.sh "$BUILD" everything
