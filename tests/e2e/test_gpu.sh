#!/usr/bin/env bash
# Tensors in the memory of GPUs, emulated ones: processes, a real winnowd, loss, several shards; what else goes well is in
# test_gpu_check.sh. And workers and nodes to which something happens at random: see tests/gpu/chaos.py.
# release: long, and it computes
# aside: it computes
. "$(dirname "$0")/lib.sh"
export WINNOW_CUDA_PLUGIN=$PWD/$BUILD/winnow-cuda-emulated.so
# Shared memory of emulated kernels is thread-local. In an object that is opened late, a thread gets it when it first
# asks, in the middle of a kernel: to the sanitizer, one fiber's memory that another one uses.
early=()
[[ ${SAN:-} != *thread* ]] || early=(env "LD_PRELOAD=$WINNOW_CUDA_PLUGIN")
round() { # seed operations aggregators [arg..]: three workers
	local rank
	for rank in 0 1 2; do
		EMULATED_CUDA_SEED=$rank start "r$rank" "${worker_side[@]}" "${early[@]}" "$BUILD/tests/gpu/device_worker" \
			"aggregators=$3" rank=$rank world=3 "seed=$1" "ops=$2" "${@:4}"
	done
	for rank in 0 1 2; do expect "r$rank" 400 0; done
	tail -n 1 "$tmp/r0.out"
}
winnowd --insecure-no-key --threads 2
server=$PORT
winnowd --insecure-no-key
round 2 "$(scaled 60)" "$HOST:$server,$HOST:$PORT" most=1000000 # three shards

# Loss: frames are sent again from pinned memory, or asked for again.
PORT=$(free_port)
"${worker_side[@]}" "$BUILD/tests/e2e/chaos" "$PORT" "$HOST:$server" 1 5 5 10 >"$tmp/chaos.out" 2>"$tmp/chaos.err" &
CHAOS=$!
pids+=("$CHAOS")
wait_port 127.0.0.1 "$PORT" || fail "chaos does not listen"
round 4 "$(scaled 60)" "127.0.0.1:$PORT"
kill -TERM $CHAOS
wait $CHAOS
grep -E 'lost [1-9].*doubled [1-9].*held back [1-9]' "$tmp/chaos.out" || fail "there was no chaos: $(cat "$tmp/chaos.out")"

python3 tests/gpu/chaos.py "$BUILD" "$HOST:$server" 1 "$(scaled 16)"
