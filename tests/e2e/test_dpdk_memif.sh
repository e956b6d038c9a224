#!/usr/bin/env bash
# Processes joined by shared memory, no kernel between: a port of the aggregator for each worker, addresses that no kernel
# has, IPv4 and IPv6, ARP and neighbour discovery by ourselves; control connections go by loopback. One thread and two; multicast and
# unicast; a job after a job.
# release: another data path
. "$(dirname "$0")/lib.sh"
need_dpdk
workers=3
# A buffer must hold a whole frame: DPDK 22.11 mixes chains up.
memif="socket=$tmp/memif.sock,socket-abstract=no,bsize=16384,rsize=10"
eal="--no-shconf --no-huge --no-pci --no-telemetry -m"
common=(--insecure-no-key --iters 2 --warmup 1 --json --check --datapath dpdk)
metrics=$(free_port)

server() { # option..
	local ports='' rank
	for ((rank = 0; rank < workers; rank++)); do
		ports+=" --vdev=net_memif$rank,role=server,id=$rank,$memif"
	done
	winnowd --insecure-no-key --datapath dpdk --eal "$eal 512$ports" --data-address "${prefix}100/$bits" --metrics "127.0.0.1:$metrics" "$@"
}

work() { # seconds option..
	local rank limit=$1
	shift
	for ((rank = 0; rank < workers; rank++)); do
		start w$rank bench --rank $rank --world $workers "${common[@]}" --data-address "$prefix$((rank + 1))/$bits" \
			--eal "$eal 192 --vdev=net_memif0,role=client,id=$rank,$memif" "$@"
	done
	for ((rank = 0; rank < workers; rank++)); do expect w$rank "$limit" 0; done
}

for way in "1 10.78.0. 24" "2 10.78.0. 24" "1 fd78:: 64" "2 fd78:: 64"; do
	read -r threads prefix bits <<<"$way"
	server --threads "$threads"
	work 60 --size 0,4,4K,3M --density 1,0.1,0
	[ "$(json "$tmp/w0.out" multicast)" = 1 ] || fail "results did not come by multicast"
	work 60 --size 1M --multicast=0 --wire fixed32
	[ "$(json "$tmp/w0.out" multicast)" = 0 ] || fail "--multicast=0 did not switch it off"
	work 60 --size 1M --dtype bf16 --op max --block 64
	winnowd_stop
	grep -q 'level=error' "$tmp/winnowd-$PORT.log" && fail "errors in the log"
done
echo "all right"
