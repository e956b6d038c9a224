#!/usr/bin/env bash
# An aggregator that cannot send: its MTU has become smaller, a firewall drops what it sends. The job ends within seconds, with a
# line that names the worker and the reason. What passes by itself is waited for: lost sends, a link that is down, a full socket.
# release: it waits long
. "$(dirname "$0")/lib.sh"
need_namespaces
hosts_up 3 1 1500
server=10.77.0.101:5555
work() { # name option..: three workers that go on for long
	job "$1" "$(everywhere 3 $server)" --insecure-no-key --size 1M --iters 1000000 "${@:2}"
}
running() { # job: has it begun?
	await "event=job_started job=$1 " "$tmp/winnowd-a0.log"
	sleep 0.3
}
ends() { # job, pattern of the error on all workers: within 5 s, most of which a busy machine may need
	job_ends "$1" 5 1 "$2"
	grep -qE "event=job_failed job=$1 code=path text=\"$2" "$tmp/winnowd-a0.log" || fail "job $1: the log does not say /$2/"
}
datagrams='Message too long \([0-9]+ datagrams in [0-9.]+ s\)'
mtu() { inside a0 ip link set eth0 mtu "$1"; }

winnowd_inside 0 --insecure-no-key --threads 1
work group
running group
mtu 1000
ends group ".*the aggregator cannot send to the multicast group 239.77.[0-9.]+: $datagrams: its interface's MTU is now smaller than the 1500 "
mtu 1500
work each --multicast=0
running each
mtu 1000
ends each ".*the aggregator cannot send to rank [0-2] \(.*10.77.0.[1-3]:[0-9]+\) and [12] more: $datagrams"
mtu 1500
work filtered --multicast=0
running filtered
inside a0 iptables -A OUTPUT -p udp -d 10.77.0.2 -j DROP
ends filtered '.*the aggregator cannot send to rank 1 \(.*10.77.0.2:[0-9]+\): Operation not permitted .*does a firewall on its host drop outgoing UDP'
# It is there before the job begins.
work early --multicast=0
ends early '.*the aggregator cannot send to rank 1 \(.*10.77.0.2:[0-9]+\): Operation not permitted'
inside a0 iptables -F OUTPUT

# Not everything ends a job: some sends in a hundred are refused, and then the link is down for a while.
inside a0 iptables -A OUTPUT -p udp -m statistic --mode random --probability 0.05 -j DROP
bench_inside 3 $server 120 --insecure-no-key --size 3M --iters 30 --warmup 0
inside a0 iptables -F OUTPUT
work down --multicast=0
running down
inside a0 ip link set eth0 down
sleep 3
inside a0 ip link set eth0 up
sleep 3
for rank in 0 1 2; do [ ! -e "$tmp/down$rank.status" ] || fail "a link that was down for 3 s has ended the job: $(cat "$tmp/down$rank.err")"; done
winnowd_stop
job_ends down 20 1 'shutting down'

# A socket that is full most of the time: nothing is wrong but the rate. On a network of its own a job lets 4 ms of it wait.
inside a0 tc qdisc add dev eth0 root tbf rate 200mbit burst 20kb limit 4mb
winnowd_inside 0 --insecure-no-key --threads 1 --buffer-bytes 65536 --metrics 10.77.0.101:9555
bench_inside 3 $server 120 --insecure-no-key --size 3M --iters 10 --warmup 0 --multicast=0 --network private
waits=$(inside w0 bash -c ". tests/e2e/lib.sh; metric 10.77.0.101:9555 winnow_net_tx_waits_total")
[ "$waits" -gt 10 ] || fail "the socket was full $waits times only"
inside a0 tc qdisc del dev eth0 root
winnowd_stop

if has_dpdk; then
	winnowd_inside 0 --insecure-no-key --threads 2 --datapath dpdk --device eth0
	# Five blocks make a frame of 1340 bytes with its headers. Those that come in must still pass, and a veth takes four bytes
	# more than its MTU.
	work dpdk --block 64 --density 0.05 --overlap none
	running dpdk
	mtu 1338
	ends dpdk ".*the aggregator cannot send to (the multicast group 239.77.[0-9.]+|rank [0-2] .* and [12] more): $datagrams"
	grep -q 'event=port .*MTU is smaller now' "$tmp/winnowd-a0.log" || fail "dpdk: the log does not say that the MTU has changed"
	mtu 1500
	bench_inside 3 $server 60 --insecure-no-key --size 3M --iters 3
fi
echo "all right"
