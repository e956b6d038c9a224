# shellcheck shell=bash
# node.sh - part of bench.sh: bytes of 8 workers with a GPU each against 2 nodes with 4 GPUs each, same data
#
# Counted, not timed, on emulated GPUs: device_worker checks every result. Blocks are what the operations say they sent and
# received, bytes what went over the wire, with headers and what was sent again.

node_count=1048576 node_ops=3

node_run() { # nodes gpus density: one process a node; JSON lines of all
	local i port pids_here=()
	port=$(free_port)
	"$build/winnowd" --listen "127.0.0.1:$port" --insecure-no-key --threads 1 --log warn --metrics no &
	local daemon=$!
	pids+=("$daemon")
	sleep 0.3
	for ((i = 0; i < $1; i++)); do
		WINNOW_CUDA_PLUGIN=$build/winnow-cuda-emulated.so WINNOW_NCCL=$build/tests/gpu/libemulated-cuda.so EMULATED_CUDA_DEVICES=$2 \
			"$build/tests/gpu/device_worker" "aggregators=127.0.0.1:$port" job=bench "rank=$i" \
			"world=$1" "gpus=$2" local=all "density=$3" "count=$node_count" block=256 "ops=$node_ops" >"$raw/node-$1-$i.out" &
		pids_here+=($!)
		pids+=($!)
	done
	all_end "${pids_here[@]}"
	stop "$daemon"
	for ((i = 0; i < $1; i++)); do grep '^{' "$raw/node-$1-$i.out"; done
}

part_node() {
	local density
	build=$(realpath "$build")
	echo
	echo "### 8 GPUs on 2 hosts: a worker each, or a node a host (in tensors of $((node_count * 4 >> 20)) MB, of a host)"
	echo
	echo "| density | union | 4 workers: blocks sent | received | a node: blocks sent | received | into the aggregator: workers | nodes | bytes both ways: workers | a node |"
	echo "|---|---|---|---|---|---|---|---|---|---|"
	for density in 0.001 0.01 0.05 0.1 0.25 0.5 1; do
		node_run 8 1 "$density" >"$raw/node-flat-$density.json"
		node_run 2 4 "$density" >"$raw/node-nodes-$density.json"
		python3 - "$density" $((node_count * 4 * node_ops)) "$raw/node-flat-$density.json" "$raw/node-nodes-$density.json" <<'P'
import json, sys
density, tensor = sys.argv[1], int(sys.argv[2])
flat, nodes = ([json.loads(line) for line in open(name)] for name in sys.argv[3:])
def host(runs, *fields): return sum(run[field] for run in runs for field in fields) / 2 / tensor
for run in flat + nodes: run["nonzero"] *= 1024; run["union"] *= 1024
union = flat[0]["union"] / tensor
fs, fr, ns, nr = (host(runs, field) for runs in (flat, nodes) for field in ("nonzero", "union"))
fw, nw = (host(runs, "sent_bytes", "received_bytes") for runs in (flat, nodes))
print(f"| {density} | {union:.3f} | {fs:.3f} | {fr:.3f} | {ns:.3f} | {nr:.3f} | {2 * fs:.2f} | {2 * ns:.2f} | {fw:.3f} | {nw:.3f} |")
P
	done
}
