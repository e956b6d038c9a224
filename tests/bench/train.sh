#!/usr/bin/env bash
# Training steps over Gloo and over Winnow on shaped links, with the newest torch of PyPI or that of PYTHON=: train.sh [BUILD [WORKERS..]]; needs root.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/bench/links.sh
build=$(realpath "${1:-build}")
worlds=("${@:2}")
[ ${#worlds[@]} -gt 0 ] || worlds=(2 4 8)
tmp=$(mktemp -d)
pids=()
finish() {
	[ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null || true
	wait 2>/dev/null || true
	links_down
	rm -rf "$tmp"
}
trap finish EXIT
[ -n "${PYTHON:-}" ] || . tests/e2e/newest_torch.sh
export PYTHONPATH=$PWD/client/python WINNOW_LIBRARY=$build/libwinnow.so PYTHONDONTWRITEBYTECODE=1 GLOO_SOCKET_IFNAME=eth0
export WINNOW_AGGREGATORS=10.77.0.101:5555 WINNOW_INSECURE_NO_KEY=1

for world in "${worlds[@]}"; do
	links_up "$world" "${RATE:-1gbit}" "${MTU:-1500}"
	ip netns exec "$net-a0" "$build/winnowd" --listen "$WINNOW_AGGREGATORS" --insecure-no-key --metrics no --log error &
	pids=($!)
	workers=()
	for ((rank = 0; rank < world; rank++)); do
		ip netns exec "$net-w$rank" "$PYTHON" tests/bench/train_bench.py "$rank" "$world" "$tmp/store$world" &
		workers+=($!)
		pids+=($!)
	done
	for pid in "${workers[@]}"; do wait "$pid"; done
	kill "${pids[0]}"
	wait "${pids[0]}"
	pids=()
	links_down
done
