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
PORT=$(free_port)
"${worker_side[@]}" "$BUILD/tests/e2e/chaos" "$PORT" "$HOST:$server" 1 5 5 10 >"$tmp/chaos.out" 2>"$tmp/chaos.err" &
CHAOS=$!
pids+=("$CHAOS")
wait_port 127.0.0.1 "$PORT" || fail "chaos does not listen"
well all 3 0 seed=4 "ops=$(scaled 60)" "aggregators=127.0.0.1:$PORT"
kill -TERM $CHAOS
wait $CHAOS
grep -E 'lost [1-9].*doubled [1-9].*held back [1-9]' "$tmp/chaos.out" || fail "there was no chaos: $(cat "$tmp/chaos.out")"

python3 tests/gpu/chaos.py "$BUILD" "$HOST:$server" 1 "$(scaled 16)"
