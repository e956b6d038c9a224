#!/usr/bin/env bash
# Tensors in the memory of GPUs, emulated ones: processes, a real winnowd, loss, several shards; what else goes well is in
# test_gpu_check.sh. And workers and nodes to which something happens at random: see tests/gpu/chaos.py.
# release: long, and it computes
# aside: it computes
. "$(dirname "$0")/lib.sh"
. tests/e2e/gpu.sh
winnowd --insecure-no-key --threads 2
server=$PORT
winnowd --insecure-no-key
well all 3 0 seed=2 "ops=$(scaled 60)" most=1000000 "aggregators=$HOST:$server,$HOST:$PORT" # three shards

# Loss: frames are sent again from pinned memory, or asked for again.
chaos "$HOST:$server" 1 5 5 10
well all 3 0 seed=4 "ops=$(scaled 60)" "aggregators=127.0.0.1:$PORT"
chaos_ends

python3 tests/gpu/chaos.py "$BUILD" "$HOST:$server" 1 "$(scaled 16)"
