#!/usr/bin/env bash
# The parts of `make check-gpu` with PyTorch, on the CPU against Gloo: that they run.
# release: long, and it computes
# no-sanitizers: Debian's python and torch are not built with them
# aside: it computes
. "$(dirname "$0")/lib.sh"
. tests/e2e/python.sh
need_modules numpy torch

export DEVICE=cpu PYTHON=$python RESULTS=$tmp/results
SIZES=1M,3M WORLDS=2,3 DENSITIES=0.05,1 ITERATIONS=3 timeout 900 tests/gpu/check.sh "$BUILD" torch beside allreduce >"$tmp/check.out" 2>&1 || fail "$(cat "$tmp/check.out")"
tests=$(cat "$tmp"/results/torch-* | awk '/^Ran / { all += $2 } END { print all + 0 }')
[ "$tests" -ge 10 ] || fail "ddp_on_gpu.py runs too few tests: $tests"
rows=$(cat "$tmp"/results/{beside,allreduce} | awk '$1 ~ /^[13]$/ && NF == 11 { print $2 }' | sort | uniq -c | xargs)
[ "$rows" = "4 1 4 2 4 3" ] || fail "bench_allreduce.py: rows a number of workers are $rows: $(cat "$tmp"/results/{beside,allreduce})"
