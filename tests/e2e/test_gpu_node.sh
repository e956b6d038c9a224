#!/usr/bin/env bash
# Nodes with several GPUs, emulated ones and an emulated NCCL: results, deaths, faults.
# release: long, and it computes
. "$(dirname "$0")/lib.sh"
export WINNOW_CUDA_PLUGIN=$PWD/$BUILD/winnow-cuda-emulated.so WINNOW_NCCL=$PWD/$BUILD/tests/gpu/libemulated-cuda.so
worker=$BUILD/tests/gpu/device_worker
rounds=0

# A node's only process, with all its GPUs; or one process a GPU, GPU 0 of each process being its own.
node_all() { # name node nodes gpus arg..
	local name=$1 node=$2 nodes=$3 gpus=$4
	shift 4
	EMULATED_CUDA_SEED=$((node + 1)) EMULATED_CUDA_DEVICES=$gpus start "$name" "$worker" \
		"aggregators=$HOST:$PORT" "rank=$node" "world=$nodes" "gpus=$gpus" local=all "$@"
}
fault="" # NAME=VALUE: the environment of each node's second process
node_each() { # name node nodes gpus arg..: NAME-0, NAME-1 ..
	local name=$1 node=$2 nodes=$3 gpus=$4 local_rank own
	shift 4
	rounds=$((rounds + 1))
	for ((local_rank = 0; local_rank < gpus; local_rank++)); do
		own=SEED=
		[ $local_rank != 1 ] || own=${fault:-$own}
		EMULATED_CUDA_SEED=$((node * 10 + local_rank + 1)) EMULATED_CUDA_DEVICES=1 start "$name-$local_rank" env "$own" "$worker" \
			"aggregators=$HOST:$PORT" "rank=$node" "world=$nodes" "gpus=$gpus" "local=$local_rank" "id=$tmp/id$rounds" "$@"
	done
}
all_well() { # nodes gpus
	local i j
	for ((i = 0; i < $1; i++)); do
		for ((j = 0; j < ${2:-1}; j++)); do expect "n$i${2:+-$j}" 120 0; done
	done
}

winnowd --insecure-no-key --threads 2

# One process a node, and one process a GPU.
for i in 0 1; do node_all "n$i" $i 2 3 job=a seed=1 "ops=$(scaled 40)"; done
all_well 2
for i in 0 1; do node_each "n$i" $i 2 2 job=b seed=2 "ops=$(scaled 40)"; done
all_well 2 2
node_all n0 0 1 4 job=c seed=3 "ops=$(scaled 30)" # a node alone
all_well 1
for i in 0 1; do node_each "n$i" $i 2 1 job=ahead seed=9 lanes=40 "ops=$(scaled 120)"; done # many at a time
all_well 2 1
for i in 0 1; do node_each "n$i" $i 2 2 job=chunks seed=10 count=5000000 density=0.02 block=256 lanes=2 ops=3; done # of several chunks
all_well 2 2

# Whatever ends one process ends all others, with one line, and nobody hangs.
ready() { # name..
	local name i
	for name in "$@"; do
		for i in $(seq 400); do
			grep -q ready "$tmp/$name.out" 2>/dev/null && break
			sleep 0.05
		done
		grep -q ready "$tmp/$name.out" || fail "$name does not get ready"
	done
	sleep 0.3
}
begin_each() { # four processes of two nodes that go on and on
	local i
	for i in 0 1; do node_each "n$i" $i 2 2 "$@" ops=0; done
	ready n0-0 n0-1 n1-0 n1-1
}

begin_each job=killed
kill -KILL "$(pid_of n0-1)"
for name in n0-0 n1-0 n1-1; do expect $name 20 1 'rank [0-9]+ .*(lost|gone|closed|disconnected)'; done

# Neither a signal nor the end of a connection tells of a process that stands still.
WINNOW_SILENCE_MS=1500 begin_each job=stopped
stopped=$(pid_of n1-0)
kill -STOP "$stopped"
for name in n0-0 n0-1 n1-1; do expect $name 20 1 'rank [0-9]+ .*(silent|lost|gone|heard)'; done
kill -KILL "$stopped"

for i in 0 1; do node_all "n$i" $i 2 2 job=node-killed ops=0; done
ready n0 n1
kill -KILL "$(pid_of n0)"
expect n1 20 1 'rank 0 .*(lost|gone|closed|disconnected)'

# Faults of NCCL and of a GPU: the others are told which call, and where.
EMULATED_CUDA_FAIL=ncclAllGather:9=1 node_all n0 0 2 2 job=fault ops=0
node_all n1 1 2 2 job=fault ops=0
expect n0 30 1 'GPU or its driver failed: ncclAllGather on GPU 0: unhandled cuda error'
expect n1 30 1 'aborted the job: ncclAllGather on GPU 0: unhandled cuda error'

EMULATED_CUDA_FAIL=kernel:200=700 node_all n0 0 2 2 job=broken ops=0
node_all n1 1 2 2 job=broken ops=0
for i in 0 1; do expect n$i 30 1 'on GPU [01]: an illegal memory access was encountered'; done

one_of_them() { # fault gpus pattern arg..: of one node's processes the second has it, and all end so
	local i
	fault=$1 node_each n0 0 1 "$2" "${@:4}"
	for ((i = 0; i < $2; i++)); do expect "n0-$i" 30 1 "$3"; done
}
one_of_them EMULATED_CUDA_FAIL=async:400+=6 3 'nccl.* on GPU 0: remote process exited' job=async ops=0
# A GPU that fails in a call is everybody's failure, although nothing of that call has begun. Also where the process leaves at once.
one_of_them EMULATED_CUDA_FAIL=cudaPointerGetAttributes:38 3 'cudaPointerGetAttributes on GPU 0' job=places ops=0
one_of_them EMULATED_CUDA_FAIL=cudaEventCreateWithFlags:49 2 'cudaEventCreateWithFlags on GPU 0' job=marks seed=59 ops=60
# Who cannot even begin does not keep the others waiting.
one_of_them EMULATED_CUDA_FAIL=cudaStreamCreateWithPriority:3 3 'cudaStreamCreateWithPriority on GPU 0' job=first
one_of_them WINNOW_NCCL=/nowhere/libnccl.so.2 2 'cannot open NCCL: /nowhere/libnccl.so.2' job=lacking
WINNOW_JOIN_TIMEOUT_MS=1000 EMULATED_CUDA_DEVICES=1 start n0 "$worker" "aggregators=$HOST:$PORT" job=alone world=1 gpus=2 local=0 "id=$tmp/alone"
expect n0 10 1 'could not join within 1.0 s'

# The aggregator dies.
begin_each job=orphans
kill -KILL "$DAEMON"
for i in 0 1; do for j in 0 1; do expect "n$i-$j" 20 1 'aggregator|unreachable|lost'; done; done
