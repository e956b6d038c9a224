#!/usr/bin/env bash
# A worker with two interfaces on one network: which of them it uses, and from which address, is its choice; the system's would be the first.
. "$(dirname "$0")/lib.sh"
need_namespaces
hosts_up 2 1 1500
ip link add "$net-w9" netns "$net-sw" type veth peer name eth1 netns "$net-w0"
ip -n "$net-sw" link set "$net-w9" master br0 up
ip -n "$net-w0" addr add 10.77.0.201/24 dev eth1
ip -n "$net-w0" link set eth1 up
hosts_six 2
ip -n "$net-w0" addr add fd77::201/64 dev eth1 nodad
winnowd_inside 0 --insecure-no-key --metrics 127.0.0.1:9555 --threads 2
ip netns exec "$net-a0" "$BUILD/winnowd" --listen '[fd77::101]:5556' --insecure-no-key --metrics no 2>"$tmp/winnowd-six.log" &
pids+=($!)
daemons+=($!)
until_ready "$tmp/winnowd-six.log"

sent() { inside w0 cat "/sys/class/net/$1/statistics/tx_bytes"; } # interface
job() { # aggregator name=value..: of rank 0; how much it sends by each of its interfaces is then in `first` and `second`, in KB
	first=$(sent eth0) second=$(sent eth1)
	start w1 inside w1 "$BUILD/winnow" bench --aggregators "$1" --insecure-no-key --rank 1 --world 2 --check --size 4M --density 1 --iters 2 --warmup 0
	start w0 inside w0 env "${@:2}" "$BUILD/winnow" bench --aggregators "$1" --insecure-no-key --rank 0 --world 2 --check --size 4M --density 1 --iters 2 --warmup 0 --json
	for i in 0 1; do expect w$i 60 0; done
	first=$((($(sent eth0) - first) / 1000)) second=$((($(sent eth1) - second) / 1000))
}
four=10.77.0.101:5555 six='[fd77::101]:5556'
for at in $four $six; do
	job "$at"
	if [ $first -lt 4000 ] || [ $second -gt 100 ]; then fail "$at: without a choice $first KB left by the first interface, $second by the second"; fi
	job "$at" WINNOW_INTERFACE=eth1
	if [ $second -lt 4000 ] || [ $first -gt 100 ]; then fail "$at: $first KB left by the first interface, $second by the second, which was wanted"; fi
	[ "$(json "$tmp/w0.out" multicast)" = 1 ] || fail "$at: no multicast by the second interface"
done
# What is on this host goes by none of them, also where others' aggregators are beside: as in a colocated job.
inside a0 "$BUILD/winnow" bench --aggregators $four --interface eth0 --insecure-no-key --check --size 4M --iters 1 >"$tmp/own.out" 2>&1 || fail "its own aggregator: $(cat "$tmp/own.out")"

# By address: the aggregator sees that one.
for at in 10.77.0.1 10.77.0.201; do
	start far inside w0 "$BUILD/winnow" bench --aggregators $four --interface $at --insecure-no-key --job far --rank 0 --world 2 --join-timeout 30s
	sees() { inside a0 "$BUILD/winnow" status --json --workers | tee "$tmp/status.json" | seen -F "\"address\": \"$at:"; }
	soon 5 sees || fail "the aggregator does not see $at: $(cat "$tmp/status.json")"
	kill -TERM "$(pid_of far)"
	finish far 20
done
refuses 1 "'eth7' is neither an interface nor an address of this host: see ip address" inside w0 "$BUILD/winnow" bench --aggregators $four --insecure-no-key --interface eth7
refuses 1 "'10.77.0.2' is neither an interface nor an address of this host" inside w0 "$BUILD/winnow" bench --aggregators $four --insecure-no-key --interface 10.77.0.2
refuses 1 'no route to aggregator .*Address family not supported' inside w0 "$BUILD/winnow" bench --aggregators "$six" --insecure-no-key --interface 10.77.0.201
has_dpdk && refuses 1 'interface is of datapath udp: dpdk has device' inside w0 "$BUILD/winnow" bench --aggregators $four --insecure-no-key --interface eth1 --datapath dpdk --device eth1
echo "by the interface that was chosen"
