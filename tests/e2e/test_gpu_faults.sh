#!/usr/bin/env bash
# Workers on emulated GPUs of which one's GPU breaks, or which dies: all end in seconds, and know whose it was. Every call of CUDA
# failing, refusals, and what does not wait: tests/python/test_cuda_faults.py.
. "$(dirname "$0")/lib.sh"
export WINNOW_CUDA_PLUGIN=$PWD/$BUILD/winnow-cuda-emulated.so
early=()
[[ ${SAN:-} != *thread* ]] || early=(env "LD_PRELOAD=$WINNOW_CUDA_PLUGIN") # see test_gpu.sh
winnowd --insecure-no-key
begin() { # job fault-of-the-second: three workers that go on and on
	rm -f "$tmp"/r?.status "$tmp"/r?.out
	for rank in 0 1 2; do
		local own=SEED=
		[ $rank != 1 ] || own=$2
		start "r$rank" env "$own" "${worker_side[@]}" "${early[@]}" "$BUILD/tests/gpu/device_worker" "aggregators=$HOST:$PORT" "job=$1" rank=$rank world=3 seed=7 ops=0
	done
}
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
