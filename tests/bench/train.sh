#!/usr/bin/env bash
# Training steps over Gloo and over Winnow on shaped links, with the newest torch of PyPI or that of PYTHON=: train.sh [BUILD [WORKERS..]]; needs root.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}")
worlds=("${@:2}")
[ ${#worlds[@]} -gt 0 ] || worlds=(2 4 8)
. tests/bench/training.sh
for world in "${worlds[@]}"; do
	train_over "${RATE:-1gbit}" "$world" tests/bench/train_bench.py "$tmp/store$world"
done
