#!/usr/bin/env bash
# winnow tune of a job between network namespaces, with two aggregators of 1 and 3 threads: predicted bytes against
# counted ones. There is much to send, since on a busy machine some announcements go out twice.
# late: it counts bytes, of which a busy machine sends some again
. "$(dirname "$0")/lib.sh"
w=$BUILD/winnow
need_namespaces
hosts_up 4 2 1500
winnowd_inside 0 --insecure-no-key --threads 1
winnowd_inside 1 --insecure-no-key --threads 3
for block in 32 96 200 2048; do
	for i in 1 2 3 4 5 6; do
		rm -rf "$tmp/trace"
		WINNOW_TRACE=$tmp/trace bench_inside 4 10.77.0.101:5555,10.77.0.102:5555 60 --insecure-no-key --size 16M --block $block --density 0.05 --iters 4
		"$w" tune "$tmp/trace" --json --blocks $block >"$tmp/tune.json" || fail "tune"
		python3 tests/e2e/tune_within.py "$tmp/tune.json" >"$tmp/within.log" && break
		[ "$i" != 6 ] || fail "between namespaces: not within 2 %: $(cat "$tmp/within.log")"
	done
done
[ "$(json "$tmp/tune.json" channels)$(json "$tmp/tune.json" payload)" = 41472 ] || fail "the job's channels and payload"
echo "predicted is counted"
