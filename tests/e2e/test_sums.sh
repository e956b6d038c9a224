#!/usr/bin/env bash
# Largest sums through the C interface, as docs/COMPRESSION.md shows them: of 3 workers each step brings 41 of each 4,096 sums of each one's part, and what was given is what has arrived and what is remembered.
. "$(dirname "$0")/lib.sh"
winnowd --insecure-no-key --threads 2
export WINNOW_AGGREGATORS=$HOST:$PORT WINNOW_INSECURE_NO_KEY=1 WINNOW_JOB=sums
for rank in 0 1 2; do
	timeout 60 "$BUILD/tests/e2e/sums" $rank 3 >"$tmp/$rank.out" 2>&1 &
	pids[rank]=$!
done
for rank in 0 1 2; do
	wait "${pids[rank]}" || fail "rank $rank: $(cat "$tmp/$rank.out")"
	# 6 steps of 3 parts of 5,000: 41 of the first 4,096 sums, and of the 904 after them 10
	[ "$(cat "$tmp/$rank.out")" = "$((6 * 3 * 51)) chosen, 0 wrong" ] || fail "rank $rank: $(cat "$tmp/$rank.out")"
done
