#!/usr/bin/env bash
# Tensors in the memory of GPUs, emulated ones: processes, a real winnowd, streams, loss, several shards.
# release: long, and it computes
# aside: it computes
. "$(dirname "$0")/lib.sh"
export WINNOW_CUDA_PLUGIN=$PWD/$BUILD/winnow-cuda-emulated.so
# Shared memory of emulated kernels is thread-local. In an object that is opened late, a thread gets it when it first
# asks, in the middle of a kernel: to the sanitizer, one fiber's memory that another one uses.
early=()
[[ ${SAN:-} != *thread* ]] || early=(env "LD_PRELOAD=$WINNOW_CUDA_PLUGIN")
worker=("${worker_side[@]}" "${early[@]}" "$BUILD/tests/gpu/device_worker")
round() { # seed world operations aggregators [arg..]
	local rank seed=$1 world=$2 operations=$3 aggregators=$4
	shift 4
	rm -f "$tmp"/r?.status
	for ((rank = 0; rank < world; rank++)); do
		EMULATED_CUDA_SEED=$rank start "r$rank" "${worker[@]}" "aggregators=$aggregators" rank=$rank "world=$world" "seed=$seed" "ops=$operations" "$@"
	done
	for ((rank = 0; rank < world; rank++)); do expect "r$rank" 400 0; done
	tail -n 1 "$tmp/r0.out"
}
winnowd --insecure-no-key --threads 2
first=$HOST:$PORT
winnowd --insecure-no-key
round 1 2 "$(scaled 60)" "$first" most=1000000
round 2 3 "$(scaled 60)" "$first,$HOST:$PORT" lanes=8 # three shards
# As little pinned memory as the windows need; a stream at work, so that calls come back before it has ended.
WINNOW_STAGING_MB=0 round 3 2 "$(scaled 40)" "$first" load=1000000

# Loss: frames are sent again from pinned memory, or asked for again.
server=$PORT
PORT=$(free_port)
"${worker_side[@]}" "$BUILD/tests/e2e/chaos" "$PORT" "$HOST:$server" 1 5 5 10 >"$tmp/chaos.out" 2>"$tmp/chaos.err" &
CHAOS=$!
pids+=("$CHAOS")
wait_port 127.0.0.1 "$PORT" || fail "chaos does not listen"
round 4 3 "$(scaled 60)" "127.0.0.1:$PORT"
kill -TERM $CHAOS
wait $CHAOS
cat "$tmp/chaos.out"
grep -qE 'lost [1-9].*doubled [1-9].*held back [1-9]' "$tmp/chaos.out" || fail "there was no chaos"
