#!/usr/bin/env bash
# Real datagrams through a proxy that loses, doubles and reorders them: results stay right.
# release: more seeds
. "$(dirname "$0")/lib.sh"
winnowd --insecure-no-key ${XDP_METRICS:+--metrics "$XDP_METRICS"}
server=$PORT server_host=$HOST
HOST=127.0.0.1 # the proxy's
chaos() { # seed loss duplicate reorder
	PORT=$(free_port)
	"${worker_side[@]}" "$BUILD/tests/e2e/chaos" "$PORT" "$server_host:$server" "$@" >"$tmp/chaos.out" 2>"$tmp/chaos.err" &
	CHAOS=$!
	pids+=("$CHAOS")
	wait_port "$HOST" "$PORT" || fail "chaos does not listen"
}
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
ends() { # the proxy, which says what it has done
	kill -TERM $CHAOS
	wait $CHAOS || fail "the proxy ended with status $?"
	cat "$tmp/chaos.out"
	grep -qE 'lost [1-9].*doubled [1-9].*held back [1-9]' "$tmp/chaos.out" || fail "there was no chaos"
}
seeds="1 2 3"
[ -z "${TWO_HOSTS:-}" ] || seeds=1 # its datagrams are small: ten times as many
for seed in $seeds; do
	chaos "$seed" 5 5 10
	round 60 --size 0,4K,3M --density 0.2
	round 60 --size 1M --dtype bf16 --op max --block 64 --density 0.5
	round 60 --size 1M --wire fixed32
	ends
done
chaos 4 30 10 30
# 30 % is too much for a network that others use, if it lasts for ten seconds.
round 120 --size 4K,500K --density 0.2 --network private
ends
[ -z "${XDP_METRICS:-}" ] || [ "$(metric "$XDP_METRICS" 'winnow_xdp_packets_total{verdict="added"}')" -gt 1000 ] ||
	fail "the kernel has added nothing"
