#!/usr/bin/env bash
# Workers that take DPDK, too: all of them, and beside others with sockets; multicast and unicast; loss; one that dies.
# release: another data path
. "$(dirname "$0")/lib.sh"
need_dpdk
hosts_up 4 1 1500
server=10.77.0.101:5555
common=(--insecure-no-key --iters 2 --warmup 1 --json --check)

workers() { # seconds how-many-with-dpdk option..
	local rank limit=$1 dpdk=$2
	shift 2
	for rank in 0 1 2 3; do
		local road=()
		((rank >= dpdk)) || road=(--datapath dpdk --device eth0)
		start w$rank inside w$rank "$BUILD/winnow" bench --aggregators $server --rank $rank --world 4 "${common[@]}" "${road[@]}" "$@"
	done
	for rank in 0 1 2 3; do expect w$rank "$limit" 0; done
	for rank in 0 1 2 3; do [ "$(json "$tmp/w$rank.out" errors)" = 0 ] || fail "rank $rank: wrong results"; done
}

for datapath in udp dpdk; do
	device=()
	[ $datapath != dpdk ] || device=(--device eth0)
	winnowd_inside 0 --insecure-no-key --threads 2 --datapath $datapath "${device[@]}"
	for dpdk in 4 2; do
		workers 60 $dpdk --size 0,4,4K,3M --density 1,0.1,0
		[ "$(json "$tmp/w0.out" multicast)" = 1 ] || fail "$datapath: results did not come by multicast to a dpdk worker"
		[ "$(json "$tmp/w0.out" payload)" = 1472 ] || fail "$datapath: payload is not what MTU 1500 carries"
		workers 60 $dpdk --size 1M --multicast=0 --wire fixed32
	done
	for host in w0 w1 w2 w3 a0; do lossy $host; done
	workers 60 2 --size 4K,3M --density 1,0.05
	[ "$(json "$tmp/w0.out" retransmits)" != 0 ] || fail "$datapath: nothing was lost"
	for host in w0 w1 w2 w3 a0; do lossy $host off; done
	winnowd_stop
done

# A worker that dies: the others, with either road, get a line each.
winnowd_inside 0 --insecure-no-key --datapath dpdk --device eth0
for rank in 0 1 2 3; do
	road=(--datapath dpdk --device eth0)
	((rank != 1)) || road=()
	ip netns exec "$net-w$rank" "$BUILD/winnow" bench --aggregators $server --rank $rank --world 4 --insecure-no-key --size 4M --iters 1000000 \
		"${road[@]}" >/dev/null 2>"$tmp/dies$rank.err" &
	dies[rank]=$!
	pids+=($!)
done
sleep 2
kill -KILL "${dies[3]}"
for rank in 0 1 2; do
	for ((i = 0; i < 100; i++)); do
		kill -0 "${dies[rank]}" 2>/dev/null || break
		sleep 0.05
	done
	kill -0 "${dies[rank]}" 2>/dev/null && fail "rank $rank hangs"
	wait "${dies[rank]}" && fail "rank $rank ended with status 0"
	grep -q 'rank 3 (.*) is lost: connection' "$tmp/dies$rank.err" || fail "rank $rank says: $(cat "$tmp/dies$rank.err")"
	[ "$(wc -l <"$tmp/dies$rank.err")" = 1 ] || fail "rank $rank: more than one line"
done
echo "all right"
