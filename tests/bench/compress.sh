#!/usr/bin/env bash
# Loss against time with dense gradients on thin links, over Gloo and over Winnow: compress.sh [BUILD [WORKERS]]; needs root.
# STEPS=300 at the first of RATES, TIMED=8 at the others; WAYS, one a line. The whole takes some twenty minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/bench/links.sh
build=$(realpath "${1:-build}") world=${2:-4}
mapfile -t ways <<<"${WAYS:-gloo
powersgd 2
allgather 0.01
winnow
winnow 0.01
winnow 0.002}"
read -ra rates <<<"${RATES:-1gbit 100mbit 10mbit}"
tmp=$(mktemp -d)
pids=()
finish() {
	[ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null || true
	wait 2>/dev/null || true
	links_down
	rm -rf "$tmp"
}
trap finish EXIT
export PYTHONPATH=$PWD/client/python WINNOW_LIBRARY=$build/libwinnow.so PYTHONDONTWRITEBYTECODE=1 GLOO_SOCKET_IFNAME=eth0
export WINNOW_AGGREGATORS=10.77.0.101:5555 WINNOW_INSECURE_NO_KEY=1
steps=${STEPS:-300}
for rate in "${rates[@]}"; do
	links_up "$world" "$rate" 1500
	ip netns exec "$net-a0" "$build/winnowd" --listen "$WINNOW_AGGREGATORS" --insecure-no-key --metrics no --log error &
	daemon=$!
	pids=("$daemon")
	workers=()
	for ((rank = 0; rank < world; rank++)); do
		ip netns exec "$net-w$rank" "${PYTHON:-/usr/bin/python3}" tests/bench/compress_bench.py "$rank" "$world" \
			"$tmp/store-$rate" "$rate" "$tmp/found" "$steps" "${ways[@]}" &
		workers+=($!)
		pids+=($!)
	done
	for pid in "${workers[@]}"; do wait "$pid"; done
	kill "$daemon"
	wait "$daemon"
	pids=()
	links_down
	steps=${TIMED:-8}
done
"${PYTHON:-/usr/bin/python3}" tests/bench/compress_bench.py table "$tmp/found"
