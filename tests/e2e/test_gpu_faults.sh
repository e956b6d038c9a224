#!/usr/bin/env bash
# Workers on emulated GPUs of which one's GPU breaks, or which dies: all end in seconds, and know whose it was. Every call of CUDA
# failing, refusals, and what does not wait: tests/python/test_cuda_faults.py.
. "$(dirname "$0")/lib.sh"
. tests/e2e/gpu.sh
winnowd --insecure-no-key
for fault in kernel:60=700 cudaLaunchKernel:45; do
	faulty=n1 fault=EMULATED_CUDA_FAIL=$fault nodes all 3 0 seed=7 ops=0
	expect n1 60 1 'rank 1: .*(GPU or its driver failed|job was aborted).* on GPU 1: '
	end 10 'rank 1 .*aborted the job: .* on GPU 1: ' n1
done
busy all 3 0 seed=7
kill -KILL "$(pid_of n1)"
end 20 'rank 1 .*(lost|gone|closed|disconnected)' n1
