#!/usr/bin/env bash
# Nodes with several GPUs, emulated ones and an emulated NCCL: results, deaths, faults.
# release: long, and it computes
. "$(dirname "$0")/lib.sh"
. tests/e2e/gpu.sh
winnowd --insecure-no-key --threads 2
well all 2 3 seed=1 "ops=$(scaled 40)"
well each 2 2 seed=2 "ops=$(scaled 40)"
well all 1 4 seed=3 "ops=$(scaled 30)"                                  # a node alone
well each 2 1 seed=9 lanes=40 "ops=$(scaled 120)"                       # many at a time
well each 2 2 seed=10 count=5000000 density=0.02 block=256 lanes=2 ops=3 # of several chunks

# Whatever ends one process ends all others, with one line, and nobody hangs.
lost='rank [0-9]+ .*(lost|gone|closed|disconnected)'
busy each 2 2
kill -KILL "$(pid_of n0-1)"
end 20 "$lost" n0-1
busy all 2 2
kill -KILL "$(pid_of n0)"
end 20 "$lost" n0

# Neither a signal nor the end of a connection tells of a process that stands still.
WINNOW_SILENCE_MS=1500 busy each 2 2
stopped=$(pid_of n1-0)
kill -STOP "$stopped"
end 20 'rank [0-9]+ .*(silent|lost|gone|heard)' n1-0
kill -KILL "$stopped"

# Faults of NCCL and of a GPU: the others are told which call, and where.
faulty=n0 fault=EMULATED_CUDA_FAIL=ncclAllGather:9=1 nodes all 2 2 ops=0
expect n0 30 1 'GPU or its driver failed: ncclAllGather on GPU 0: unhandled cuda error'
expect n1 30 1 'aborted the job: ncclAllGather on GPU 0: unhandled cuda error'
faulty=n0 fault=EMULATED_CUDA_FAIL=kernel:200=700 nodes all 2 2 ops=0
end 30 'on GPU [01]: an illegal memory access was encountered'

one_of_them() { # fault gpus pattern arg..: of one node's processes the second has it, and all end so
	faulty=n0-1 fault=$1 nodes each 1 "$2" "${@:4}"
	end 30 "$3"
}
one_of_them EMULATED_CUDA_FAIL=async:400+=6 3 'nccl.* on GPU 0: remote process exited' ops=0
# A GPU that fails in a call is everybody's failure, although nothing of that call has begun. Also where the process leaves at once.
one_of_them EMULATED_CUDA_FAIL=cudaPointerGetAttributes:38 3 'cudaPointerGetAttributes on GPU 0' ops=0
one_of_them EMULATED_CUDA_FAIL=cudaEventCreateWithFlags:49 2 'cudaEventCreateWithFlags on GPU 0' seed=59 ops=60
# Who cannot even begin does not keep the others waiting.
one_of_them EMULATED_CUDA_FAIL=cudaStreamCreateWithPriority:3 3 'cudaStreamCreateWithPriority on GPU 0'
one_of_them WINNOW_NCCL=/nowhere/libnccl.so.2 2 'cannot open NCCL: /nowhere/libnccl.so.2'
WINNOW_JOIN_TIMEOUT_MS=1000 start alone "$BUILD/tests/gpu/device_worker" "aggregators=$HOST:$PORT" job=alone gpus=2 local=0 "id=$tmp/alone"
expect alone 10 1 'could not join within 1.0 s'

# The aggregator dies.
busy each 2 2
kill -KILL "$DAEMON"
end 20 'aggregator|unreachable|lost'
