#!/usr/bin/env bash
# Workers that take DPDK, too: all of them, and beside others with sockets; multicast and unicast; loss; one that dies.
# release: another data path
. "$(dirname "$0")/lib.sh"
need_dpdk
hosts_up 4 1 1500
server=10.77.0.101:5555
common=(--insecure-no-key --iters 2 --warmup 1 --json)
dpdk=4
own() { [ "$1" -ge "$dpdk" ] || echo "--datapath dpdk --device eth0"; }

for datapath in udp dpdk; do
	device=()
	[ $datapath != dpdk ] || device=(--device eth0)
	winnowd_inside 0 --insecure-no-key --threads 2 --datapath $datapath "${device[@]}"
	for dpdk in 4 2; do
		bench_inside 4 $server 60 "${common[@]}" --size 0,4,4K,3M --density 1,0.1,0
		has w multicast 1
		has w payload 1472
		bench_inside 4 $server 60 "${common[@]}" --size 1M --multicast=0 --wire fixed32
	done
	for host in w0 w1 w2 w3 a0; do lossy $host; done
	bench_inside 4 $server 60 "${common[@]}" --size 4K,3M --density 1,0.05
	[ "$(json "$tmp/w0.out" retransmits)" != 0 ] || fail "$datapath: nothing was lost"
	for host in w0 w1 w2 w3 a0; do lossy $host off; done
	winnowd_stop
done

# A worker that dies: the others, with either road, get a line each.
winnowd_inside 0 --insecure-no-key --datapath dpdk --device eth0
own() { [ "$1" = 1 ] || echo "--datapath dpdk --device eth0"; }
job dies "$(everywhere 4 $server)" --insecure-no-key --size 4M --iters 1000000
await 'event=job_started job=dies' "$tmp/winnowd-a0.log"
kill -KILL "$(pid_of dies3)"
for rank in 0 1 2; do expect dies$rank 5 1 'rank 3 (.*) is lost: connection'; done
echo "all right"
