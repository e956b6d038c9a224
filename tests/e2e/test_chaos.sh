#!/usr/bin/env bash
# Real datagrams through a proxy that loses, doubles and reorders them: results stay right.
# release: more seeds
. "$(dirname "$0")/lib.sh"
winnowd --insecure-no-key ${XDP_METRICS:+--metrics "$XDP_METRICS"}
server=$HOST:$PORT
HOST=127.0.0.1 # the proxy's
round() { # seconds, bench options..
	local rank limit=$1
	shift
	rm -f "$tmp"/r?.status
	for rank in 0 1 2 3; do
		start r$rank bench --insecure-no-key --rank $rank --world 4 --check --json --iters 3 --warmup 0 "$@"
	done
	for rank in 0 1 2 3; do expect r$rank "$limit" 0; done
	[ "$(json "$tmp/r0.out" errors)" = 0 ] || fail "wrong results"
}
seeds="1 2 3"
[ -z "${TWO_HOSTS:-}" ] || seeds=1 # its datagrams are small: ten times as many
for seed in $seeds; do
	chaos "$server" "$seed" 5 5 10
	round 60 --size 0,4K,3M --density 0.2
	round 60 --size 1M --dtype bf16 --op max --block 64 --density 0.5
	round 60 --size 1M --wire fixed32
	chaos_ends
done
chaos "$server" 4 30 10 30
# 30 % is too much for a network that others use, if it lasts for ten seconds.
round 120 --size 4K,500K --density 0.2 --network private
chaos_ends
[ -z "${XDP_METRICS:-}" ] || [ "$(metric "$XDP_METRICS" 'winnow_xdp_packets_total{verdict="added"}')" -gt 1000 ] ||
	fail "the kernel has added nothing"
