#!/usr/bin/env bash
# Tensors in the memory of GPUs, emulated ones: processes, a real winnowd, loss, several shards. Then one's GPU breaks, or one dies: all
# end in seconds, and know whose it was. Every call of CUDA failing, refusals, and what does not wait: tests/python/test_cuda_faults.py.
. "$(dirname "$0")/lib.sh"
. tests/e2e/gpu.sh
winnowd --insecure-no-key --threads 2
server=$PORT
winnowd --insecure-no-key
well all 3 0 seed=2 "ops=$(scaled 20)" most=1000000 "aggregators=$HOST:$server,$HOST:$PORT" # three shards

# Loss: frames are sent again from pinned memory, or asked for again.
chaos "$HOST:$server" 1 5 5 10
well all 3 0 seed=4 "ops=$(scaled 20)" "aggregators=127.0.0.1:$PORT"
chaos_ends
PORT=$server

for fault in kernel:60=700 cudaLaunchKernel:45; do
	faulty=n1 fault=EMULATED_CUDA_FAIL=$fault nodes all 3 0 seed=7 ops=0
	expect n1 60 1 'rank 1: .*(GPU or its driver failed|job was aborted).* on GPU 1: '
	end 10 'rank 1 .*aborted the job: .* on GPU 1: ' n1
done
busy all 3 0 seed=7
kill -KILL "$(pid_of n1)"
end 20 'rank 1 .*(lost|gone|closed|disconnected)' n1
