#!/usr/bin/env bash
# winnow tune --aggregators between network namespaces, two aggregators with 1 and 3 threads: predicted bytes against
# counted ones. There is much to send, since on a busy machine some announcements go out twice.
# late: it counts bytes, of which a busy machine sends some again
. "$(dirname "$0")/lib.sh"
w=$BUILD/winnow
need_namespaces
hosts_up 4 2 1500
winnowd_inside 0 --insecure-no-key --threads 1
winnowd_inside 1 --insecure-no-key --threads 3
for i in 1 2 3 4 5 6 7 8 9 10; do
	for rank in 0 1 2 3; do
		start "t$rank" inside w$rank "$w" tune --size 16M --unit 96 --density 0.05 --aggregators 10.77.0.101:5555,10.77.0.102:5555 \
			--rank $rank --world 4 --insecure-no-key --blocks 32,96,200,2048 --json
	done
	for rank in 0 1 2 3; do expect "t$rank" 60 0; done
	python3 tests/e2e/tune_within.py "$tmp/t0.out" "$tmp/within.seen" >"$tmp/within.log" && break
	[ "$i" != 10 ] || fail "between namespaces: not within 2 %: $(cat "$tmp/within.log")"
done
[ "$(json "$tmp/t0.out" channels)$(json "$tmp/t0.out" payload)" = 41472 ] || fail "the job's channels and payload"
echo "predicted is counted"
