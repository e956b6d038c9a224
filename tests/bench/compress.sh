#!/usr/bin/env bash
# Loss against time with dense gradients on thin links, over Gloo and over Winnow: compress.sh [BUILD [WORKERS]]; needs root.
# STEPS=300 at the first of RATES, TIMED=8 at the others; WAYS, one a line.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}") world=${2:-4}
mapfile -t ways <<<"${WAYS:-gloo
powersgd 2
allgather 0.01
winnow
winnow 0.01
winnow 0.002}"
read -ra rates <<<"${RATES:-1gbit 100mbit 10mbit}"
PYTHON=${PYTHON:-/usr/bin/python3}
. tests/bench/training.sh
steps=${STEPS:-300}
for rate in "${rates[@]}"; do
	train_over "$rate" "$world" tests/bench/compress_bench.py "$tmp/store-$rate" "$rate" "$tmp/found" "$steps" "${ways[@]}"
	steps=${TIMED:-8}
done
"$PYTHON" tests/bench/compress_bench.py table "$tmp/found"
