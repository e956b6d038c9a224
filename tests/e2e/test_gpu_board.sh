#!/usr/bin/env bash
# A share that came to nothing on one GPU is known to the node's other processes before their streams
# go on. The aggregator stands still meanwhile: nothing but the node's board can tell them.
. "$(dirname "$0")/lib.sh"
export WINNOW_CUDA_PLUGIN=$PWD/$BUILD/winnow-cuda-emulated.so WINNOW_NCCL=$PWD/$BUILD/tests/gpu/libnccl-fake.so
export WINNOW_SILENCE_MS=60000
winnowd --insecure-no-key

# Two nodes of two processes. The call by which one process would let its stream go on with a good
# share fails; what its stream holds then is not the sum of both nodes.
for node in 0 1; do
	for local_rank in 0 1; do
		fault=()
		[ $node$local_rank != 01 ] || fault=(EMULATED_CUDA_FAIL=cuStreamWriteValue32:6 "EMULATED_CUDA_HOLD=$tmp/hold" FAKE_NCCL_ABORT_MS=1000)
		EMULATED_CUDA_SEED=$((node * 2 + local_rank + 1)) EMULATED_CUDA_DEVICES=1 start "n$node-$local_rank" env "${fault[@]}" \
			"$BUILD/tests/gpu/device_node" "aggregators=$HOST:$PORT" node=$node nodes=2 gpus=2 local=$local_rank \
			"id=$tmp/id$node" job=board ops=1000000 density=1 count=2000 block=100
	done
done
for i in $(seq 400); do
	[ ! -e "$tmp/hold.met" ] || break
	sleep 0.05
done
[ -e "$tmp/hold.met" ] || fail "no share fails"
sleep 0.5 # all other shares are there: their processes wait for this one
kill -STOP "$DAEMON"
touch "$tmp/hold"
expect n0-1 8 1 'cuStreamWriteValue32 on GPU 0'
expect n0-0 8 1 'cuStreamWriteValue32 on GPU 0'

# The other node cannot know yet, and ends when it can.
[ ! -e "$tmp/n1-0.status" ] || fail "the other node has ended"
kill -CONT "$DAEMON"
for local_rank in 0 1; do expect "n1-$local_rank" 20 1 'cuStreamWriteValue32 on GPU 0|lost|gone|closed'; done
