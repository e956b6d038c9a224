#!/usr/bin/env bash
# Tensors on emulated GPUs where something is wrong: refusals, every call of CUDA failing once, one worker's
# GPU breaking among three, no GPU at all. And what crosses the bus, and what does not wait.
. "$(dirname "$0")/lib.sh"
export WINNOW_CUDA_PLUGIN=$PWD/$BUILD/winnow-cuda-emulated.so
# Shared memory of emulated kernels is thread-local. In an object that is opened late, a thread gets it when it first
# asks, in the middle of a kernel: to the sanitizer, one fiber's memory that another one uses.
early=()
[[ ${SAN:-} != *thread* ]] || early=(env "LD_PRELOAD=$WINNOW_CUDA_PLUGIN")
worker=("${worker_side[@]}" "${early[@]}" "$BUILD/tests/gpu/device_worker")
faults=("${worker_side[@]}" "${early[@]}" "$BUILD/tests/gpu/device_faults")
manners=("${worker_side[@]}" "${early[@]}" "$BUILD/tests/gpu/device_manners")
winnowd --insecure-no-key
EMULATED_CUDA_PROCESSORS=132 timeout 100 "${faults[@]}" "$HOST:$PORT" || fail "what is right goes wrong"
timeout 100 "${manners[@]}" "$HOST:$PORT" || fail "others are in the way"

calls="cudaEventRecord cudaStreamWaitEvent cudaLaunchHostFunc cudaLaunchKernel kernel cudaMemcpyAsync cudaHostAlloc
	cudaMalloc cudaStreamCreateWithPriority cudaEventCreateWithFlags cuStreamWaitValue32 cuStreamWriteValue32
	cudaPointerGetAttributes cudaStreamIsCapturing cudaStreamGetDevice cudaFuncGetAttributes cudaStreamSynchronize"
case ${SAN:-} in # each failure is a process, and takes seconds there
*thread*) calls="cuStreamWaitValue32 cuStreamWriteValue32" ;;
?*) calls="cudaEventRecord cudaLaunchHostFunc cuStreamWaitValue32" ;;
esac
# shellcheck disable=SC2086 # a list
timeout 400 "${faults[@]}" "$HOST:$PORT" $calls || fail "a failure is not handled"
# Host functions that had begun when the GPU failed come when all is over.
[[ ${SAN:-} = *thread* ]] || EMULATED_CUDA_HOST_US=15000 timeout 200 "${faults[@]}" "$HOST:$PORT" kernel || fail "a host function comes too late"

# The GPU of one of three workers breaks: all end in seconds, and know whose it was.
for fault in kernel:20=700 cudaStreamWaitEvent:25; do
	rm -f "$tmp"/r?.status
	for rank in 0 1 2; do
		[ $rank = 1 ] && export EMULATED_CUDA_FAIL=$fault
		start "r$rank" "${worker[@]}" "$HOST:$PORT" "$rank" 3 7 30 "broken.${fault%%:*}"
		unset EMULATED_CUDA_FAIL
	done
	expect r1 60 1 'rank 1: .*(GPU or its driver failed|job was aborted).* on GPU 1: '
	for rank in 0 2; do
		expect "r$rank" 10 1 'rank 1 .*aborted the job: .* on GPU 1: '
	done
done

# No plugin, and one that is none.
refused() { # pattern plugin
	WINNOW_CUDA_PLUGIN=$2 refuses 1 "$1" "${worker_side[@]}" "$BUILD/tests/gpu/device_worker" "$HOST:$PORT" 0 1 1 3 refused
}
refused 'cannot open winnow-cuda.so: .*no-such-file' "$tmp/no-such-file.so"
refused 'belongs to another version' "$PWD/$BUILD/libwinnow.so"
EMULATED_CUDA_DEVICES=0 "${faults[@]}" "$HOST:$PORT" || fail "no GPU is not refused"
EMULATED_CUDA_FAIL=cudaGetDeviceCount:1+=35 "${faults[@]}" "$HOST:$PORT" || fail "an old driver is not refused"
