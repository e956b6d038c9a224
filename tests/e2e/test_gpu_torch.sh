#!/usr/bin/env bash
# The PyTorch part of `make check-gpu` and the table of `make bench-gpu`, on the CPU against Gloo: that they run.
# no-sanitizers: Debian's python and torch are not built with them
# aside: it computes
. "$(dirname "$0")/lib.sh"
. tests/e2e/python.sh
need_modules numpy torch
export DEVICE=cpu

winnowd --insecure-no-key --threads 3 --log error
WINNOW_AGGREGATORS=$HOST:$PORT timeout 400 "$python" tests/gpu/ddp_on_gpu.py -v >"$tmp/ddp.log" 2>&1 || fail "ddp_on_gpu.py"
grep -qE '^Ran 1[0-9] tests' "$tmp/ddp.log" || fail "ddp_on_gpu.py runs too few tests"

SIZES=1M,3M WORLDS=2,3 DENSITIES=0.05,1 ITERATIONS=3 tests/gpu/bench.sh "$BUILD" allreduce >"$tmp/bench.out" 2>"$tmp/bench.log" || fail "bench.sh"
rows=$(awk '$1 ~ /^[13]$/ && NF == 9' "$tmp/bench.out" | wc -l)
[ "$rows" = 8 ] || fail "bench.sh: $rows rows, want 8: $(cat "$tmp/bench.out")"
