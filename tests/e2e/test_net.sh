#!/usr/bin/env bash
# Real packets between network namespaces: sizes, types, operations, several aggregators, threads and jobs;
# multicast and unicast; loss. Every element is checked on every worker.
. "$(dirname "$0")/lib.sh"
need_namespaces
hosts_up 4 2 1500
one=10.77.0.101:5555 two=10.77.0.101:5555,10.77.0.102:5555
common=(--insecure-no-key --iters 2 --warmup 1 --json)
winnowd_inside 0 --insecure-no-key --threads 1
winnowd_inside 1 --insecure-no-key --threads 3

bench_inside 4 $one 60 "${common[@]}" --size 0,4,4K,64K,10M --density 1,0.1,0
has w multicast 1
has w payload 1472
# Nothing is lost here, so a worker pushes hardly anything again and hardly ever asks, whatever makes a busy machine late: of 10,240
# frames of an operation and more. The ring of a packet socket does lose some.
again() { python3 -c 'import json, sys; print(round(sum(row[sys.argv[2]] for row in json.load(open(sys.argv[1]))["rows"])))' "$tmp/w0.out" "$1"; }
most=100
[[ ${WINNOWD_OPTIONS:-} != *dpdk* ]] || most=5000
# So does the ring of a veth under XDP, of 256 frames, when the machine is busy: 4,012 were seen beside a build.
[[ ${WINNOWD_OPTIONS:-} != *xdp* ]] || most=10000
[ "$(again retransmits)" -le $most ] || fail "without loss, $(again retransmits) datagrams of an iteration were sent again"
[ "$(again nacks)" -le 200 ] || fail "without loss, a worker has asked $(again nacks) times in an iteration"
for type in f16 bf16 f64 i32 i64; do
	for op in sum avg min max prod; do
		bench_inside 4 $one 60 "${common[@]}" --size 1M --dtype $type --op $op --block 96
	done
done
bench_inside 4 $one 60 "${common[@]}" --size 10M --wire fixed32 --in-place
bench_inside 4 $one 60 "${common[@]}" --size 10M --block 4096 --density 0.3 --overlap all
bench_inside 4 $one 60 "${common[@]}" --size 10M --block 32 --density 0.2 --overlap none --threads 2
bench_inside 4 $two 60 "${common[@]}" --size 4K,10M --density 0.1
has w channels 4 # of 1 and 3 threads
bench_inside 4 $two 60 "${common[@]}" --size 10M --multicast=0
has w multicast 0
bench_inside 1 $two 60 "${common[@]}" --size 10M
# The network does not carry multicast to one of them: the others still get it.
inside w2 iptables -A INPUT -d 224.0.0.0/4 -j DROP
bench_inside 4 $one 60 "${common[@]}" --size 10M
has w multicast 1 1 0 1
# A path that is narrower than the interface says.
ip -n "$net-sw" link set "$net-w3" mtu 1400
bench_inside 4 $one 60 "${common[@]}" --size 1M
[ "$(json "$tmp/w0.out" payload)" -le 1372 ] || fail "payload is larger than the path"
ip -n "$net-sw" link set "$net-w3" mtu 1500

# Several jobs at once, on the same aggregators, with loss.
for host in w0 w1 w2 w3 a0 a1; do
	inside $host iptables -A INPUT -p udp -m statistic --mode random --probability 0.03 -j DROP
done
for job in x y z; do
	job $job "$(everywhere 4 $two)" "${common[@]}" --size 4K,3M --density 1,0.05
done
for job in x y z; do job_ends $job 120; done
bench_inside 4 $two 120 "${common[@]}" --size 4K,10M --density 1,0.1
echo "all right"
