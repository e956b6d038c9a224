# shellcheck shell=bash
# Sourced by what trains over shaped links: `train_over RATE WORLD SCRIPT ARG..` runs SCRIPT RANK WORLD ARG.. on each of WORLD hosts.
# It needs root and $build; PYTHON= says with which Python, else it is one with the newest torch of PyPI; $tmp is a folder that goes in the end.
. tests/bench/links.sh
tmp=$(mktemp -d)
pids=()
finish() {
	[ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null || true
	wait 2>/dev/null || true
	links_down
	rm -rf "$tmp"
}
trap finish EXIT
[ -n "${PYTHON:-}" ] || . tests/e2e/newest_torch.sh # it unsets what begins with WINNOW_
export PYTHONPATH=$PWD/client/python WINNOW_LIBRARY=$build/libwinnow.so PYTHONDONTWRITEBYTECODE=1 GLOO_SOCKET_IFNAME=eth0
export WINNOW_AGGREGATORS=10.77.0.101:5555 WINNOW_INSECURE_NO_KEY=1

train_over() {
	local rate=$1 world=$2 script=$3 rank pid workers=()
	links_up "$world" "$rate" "${MTU:-1500}"
	export AGGREGATOR_NAMESPACE=$net-a0
	ip netns exec "$net-a0" "$build/winnowd" --listen "$WINNOW_AGGREGATORS" --insecure-no-key --metrics no --log error &
	pids=($!)
	export AGGREGATOR_PID=$!
	for ((rank = 0; rank < world; rank++)); do
		ip netns exec "$net-w$rank" "$PYTHON" "$script" "$rank" "$world" "${@:4}" &
		workers+=($!)
		pids+=($!)
	done
	for pid in "${workers[@]}"; do wait "$pid"; done
	kill "${pids[0]}"
	wait "${pids[0]}"
	pids=()
	links_down
}
