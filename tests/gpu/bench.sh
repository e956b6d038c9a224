#!/usr/bin/env bash
# bench.sh FOLDER [PART..] - the tables of docs/BENCHMARKS.md that need a GPU: kernels allreduce
#
# FOLDER as for check.sh. Raw numbers stay in FOLDER/bench/*.json. A part that hangs ends after SECONDS_MAX=540.
#   PYTHON=python3           the one that has PyTorch
#   SIZES=100M,1G WORLDS=2,4 DENSITIES=0.001,0.01,0.1,1 ITERATIONS=7 ROW_SECONDS=20 WIRE=auto   of allreduce
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
folder=$(realpath "${1:?usage: tests/gpu/bench.sh FOLDER [PART..]}")
shift
parts=${*:-kernels allreduce}
PYTHON=${PYTHON:-python3} SECONDS_MAX=${SECONDS_MAX:-540}
raw=$folder/bench
mkdir -p "$raw"
pids=()
trap 'for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null; done' EXIT
trap 'exit 1' INT TERM
for name in $(compgen -e | grep -E '^(WINNOW_|NCCL_|RANK$|WORLD_SIZE$|MASTER_|CUDA_LAUNCH_BLOCKING$|CUDA_DEVICE_MAX_CONNECTIONS$)' || true); do
	unset "$name"
done
export WINNOW_LIBRARY=$folder/libwinnow.so BUILD=$folder PYTHONDONTWRITEBYTECODE=1

[ -x "$folder/winnowd" ] || {
	echo "bench-gpu: $folder/winnowd is missing: run \`make gpu-bundle\` on a machine with CUDA and the libraries of docker/packages.txt, and bring its build/gpu here" >&2
	exit 1
}
[ "${DEVICE:-}" = cpu ] || gpu=$("$folder/device_streams" device 2>&1) || {
	echo "bench-gpu: $gpu" >&2
	exit 77
}

part_kernels() {
	timeout -k 10 "$SECONDS_MAX" "$folder/bench_gpu" | tee "$raw/kernels.txt"
}

part_allreduce() {
	local port
	port=$("$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
	"$folder/winnowd" --listen "127.0.0.1:$port" --insecure-no-key --threads 4 --log error </dev/null &
	pids+=($!)
	WINNOW_AGGREGATORS=127.0.0.1:$port timeout -k 10 "$SECONDS_MAX" "$PYTHON" tests/gpu/bench_allreduce.py \
		--sizes "${SIZES:-100M,1G}" --worlds "${WORLDS:-2,4}" --densities "${DENSITIES:-0.001,0.01,0.1,1}" \
		--iterations "${ITERATIONS:-7}" --seconds "${ROW_SECONDS:-20}" --wire "${WIRE:-auto}" --json "$raw/allreduce.json"
}

status=0
for part in $parts; do
	function=part_${part//-/_}
	if [ "$(type -t "$function")" != function ]; then
		echo "bench-gpu: there is no part '$part'" >&2
		exit 2
	fi
	$function || status=1
done
exit $status
