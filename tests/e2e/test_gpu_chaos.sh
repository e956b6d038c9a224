#!/usr/bin/env bash
# Workers and nodes on emulated GPUs to which something happens at random: see tests/gpu/chaos.py.
# release: more seeds
# aside: it computes
. "$(dirname "$0")/lib.sh"
winnowd --insecure-no-key
python3 tests/gpu/chaos.py "$BUILD" "$HOST:$PORT" 1 "$(scaled 16)" >"$tmp/chaos.out" 2>&1 || fail "$(cat "$tmp/chaos.out")"
tail -n 1 "$tmp/chaos.out"
