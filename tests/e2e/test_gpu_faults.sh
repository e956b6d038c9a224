#!/usr/bin/env bash
# Tensors on emulated GPUs where something is wrong: refusals, every call of CUDA failing once, one worker's
# GPU breaking among three, a worker that dies, no GPU at all. And what crosses the bus, and what does not wait.
. "$(dirname "$0")/lib.sh"
export WINNOW_CUDA_PLUGIN=$PWD/$BUILD/winnow-cuda-emulated.so
early=()
[[ ${SAN:-} != *thread* ]] || early=(env "LD_PRELOAD=$WINNOW_CUDA_PLUGIN") # see test_gpu.sh
worker=("${worker_side[@]}" "${early[@]}" "$BUILD/tests/gpu/device_worker")
faults=("${worker_side[@]}" "${early[@]}" "$BUILD/tests/gpu/device_faults")
winnowd --insecure-no-key
timeout 200 "${faults[@]}" "$HOST:$PORT" || fail "what is right goes wrong"

calls="cudaLaunchKernel kernel cudaMemsetAsync cudaEventRecord cudaStreamWaitEvent cudaPointerGetAttributes
	cudaStreamIsCapturing cudaEventQuery cudaHostAlloc cudaMalloc cudaStreamCreateWithPriority
	cudaEventCreateWithFlags cudaFuncGetAttributes cudaStreamSynchronize cudaDeviceGetAttribute"
case ${SAN:-} in # each failure is a process, and takes seconds there
*thread*) calls="cudaLaunchKernel" ;;
?*) calls="cudaLaunchKernel kernel cudaHostAlloc" ;;
esac
# shellcheck disable=SC2086 # a list
timeout 400 "${faults[@]}" "$HOST:$PORT" $calls || fail "a failure is not handled"

begin() { # job fault-of-the-second: three workers that go on and on
	rm -f "$tmp"/r?.status "$tmp"/r?.out
	for rank in 0 1 2; do
		local own=SEED=
		[ $rank != 1 ] || own=$2
		start "r$rank" env "$own" "${worker[@]}" "aggregators=$HOST:$PORT" "job=$1" rank=$rank world=3 seed=7 ops=0
	done
}
# The GPU of one of three workers breaks, or the worker dies: all end in seconds, and know whose it was.
for fault in kernel:60=700 cudaLaunchKernel:45; do
	begin "broken.${fault%%:*}" "EMULATED_CUDA_FAIL=$fault"
	expect r1 60 1 'rank 1: .*(GPU or its driver failed|job was aborted).* on GPU 1: '
	for rank in 0 2; do expect "r$rank" 10 1 'rank 1 .*aborted the job: .* on GPU 1: '; done
done
begin killed SEED=
for i in $(seq 400); do
	grep -q running "$tmp/r1.out" 2>/dev/null && break
	sleep 0.05
done
kill -KILL "$(pid_of r1)"
for rank in 0 2; do expect "r$rank" 20 1 'rank 1 .*(lost|gone|closed|disconnected)'; done

# No plugin, and one that is none.
refused() { # pattern plugin
	WINNOW_CUDA_PLUGIN=$2 refuses 1 "$1" "${worker_side[@]}" "$BUILD/tests/gpu/device_worker" "aggregators=$HOST:$PORT" job=refused ops=1
}
refused 'cannot open winnow-cuda.so: .*no-such-file' "$tmp/no-such-file.so"
refused 'belongs to another version' "$PWD/$BUILD/libwinnow.so"
EMULATED_CUDA_DEVICES=0 "${faults[@]}" "$HOST:$PORT" || fail "no GPU is not refused"
EMULATED_CUDA_FAIL=cudaGetDeviceCount:1+=35 "${faults[@]}" "$HOST:$PORT" || fail "an old driver is not refused"
