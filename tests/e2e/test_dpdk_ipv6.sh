#!/usr/bin/env bash
# DPDK by IPv6: addresses that are the kernel's and such as no kernel has, whose neighbours and groups are ours to ask and tell;
# workers with sockets and with DPDK in one job, or all with DPDK; multicast, unicast and loss; one that dies; a router between;
# wrong addresses.
# release: DPDK in all its ways is there
. "$(dirname "$0")/lib.sh"
need_dpdk
hosts_up 4 1 1500
common=(--insecure-no-key --iters 2 --warmup 1 --json)
hosts_six 4
serve() { # ADDR, option..
	winnowd_inside 0 --insecure-no-key --listen "$1:5555" --threads 2 "${@:2}"
}
own() { # rank: 0 and 1 with DPDK (or those up to LAST), at the addresses OWN0 and OWN1 if these are set, others with sockets
	local at=OWN$1
	[ "$1" -gt "${LAST:-1}" ] || echo "--datapath dpdk --device eth0 ${!at:+--data-address ${!at}}"
}
works() { # name aggregator option..
	job "$1" "$(everywhere 4 "$2")" --join-timeout 20 "${common[@]}" "${@:3}"
	job_ends "$1" 60
}
# shellcheck disable=SC2054 # lists of sizes
sizes=(--size 0,4,4K,3M --density 1,0.1,0)

# The kernel's addresses: it answers for us, and we read its table of neighbours.
serve '[fd77::101]' --datapath dpdk --device eth0
works six '[fd77::101]:5555' "${sizes[@]}"
has six payload 1452
has six multicast 1
works copies '[fd77::101]:5555' --size 1M --multicast=0 --wire fixed32
has copies multicast 0
for host in w0 w1 w2 w3 a0; do lossy $host; done
works lossy '[fd77::101]:5555' --size 4K,3M --density 1,0.05
[ "$(json "$tmp/lossy0.out" retransmits)" != 0 ] || fail "nothing was lost"
for host in w0 w1 w2 w3 a0; do lossy $host off; done
# What only the link knows.
link=$(ip -n "$net-a0" -6 -o addr show dev eth0 scope link | sed -n 's/.* \(fe80[^/]*\).*/\1/p')
winnowd_stop
serve "[$link%eth0]" --datapath dpdk --device eth0
start link inside w2 "$BUILD/winnow" bench --aggregators "[$link%eth0]:5555" --job link --rank 0 --world 1 --check "${common[@]}" "${sizes[@]}"
expect link 60 0
winnowd_stop

# Sockets at the aggregator. A worker's one address is of the family of the aggregator's; a name may have both.
serve '[::]' --datapath udp
works udp '[fd77::101]:5555' "${sizes[@]}"
has udp multicast 1
winnowd_stop
# Control may come by IPv4.
serve '[::]' --datapath dpdk --device eth0 --data-address fd77::101
OWN0=fd77::1 OWN1=fd77::2/64 works mixed 10.77.0.101:5555 "${sizes[@]}"
has mixed payload 1452
winnowd_stop

# At any address it is the port's of IPv4, or if it has none that of IPv6.
serve '[::]' --datapath dpdk --device eth0
works any 10.77.0.101:5555 --size 1M
has any payload 1472
LAST=3 works all 10.77.0.101:5555 "${sizes[@]}"
has all multicast 1
# One that dies: the others, with either road, get a line each.
job dies "$(everywhere 4 10.77.0.101:5555)" --insecure-no-key --size 4M --iters 1000000
await 'event=job_started job=dies' "$tmp/winnowd-a0.log"
kill -KILL "$(pid_of dies1)"
for rank in 0 2 3; do expect dies$rank 10 1 'rank 1 (.*) is lost: connection'; done
winnowd_stop
ip -n "$net-a0" addr del 10.77.0.101/24 dev eth0
serve '[::]' --datapath dpdk --device eth0
works left '[fd77::101]:5555' --size 1M
has left payload 1452
winnowd_stop
ip -n "$net-a0" addr add 10.77.0.101/24 dev eth0

# Addresses that no kernel has: solicitations, advertisements and reports are ours to send. The switch floods no group that anyone
# reports; it asks who listens.
ip -n "$net-sw" addr add fe80::fe/64 dev br0 nodad
ip -n "$net-sw" link set br0 type bridge mcast_snooping 1 mcast_querier 1 mcast_query_response_interval 100 mcast_startup_query_interval 100
sleep 0.5
serve 10.77.0.101 --datapath dpdk --device eth0 --data-address fd77::200/64
OWN0=fd77::201/64 OWN1=fd77::202/64 works own 10.77.0.101:5555 "${sizes[@]}"
has own payload 1452
has own multicast 1
OWN0=fd77::201/64 OWN1=fd77::202/64 works reported 10.77.0.101:5555 --size 3M --iters 20
[ "$(inside w2 ip -6 neigh show fd77::200 | grep -c lladdr)" = 1 ] || fail "solicitations for the port's address were not answered"
inside a0 ip -d link show eth0 | seen 'allmulti 1' || fail "the interface does not take all groups"
# Whoever would have the same address is told that it is taken.
inside w3 ip addr add fd77::200/64 dev eth0
taken() { inside w3 ip -6 addr show dev eth0 | seen dadfailed; }
soon 5 taken || fail "the port's address could be taken"
inside w3 ip addr del fd77::200/64 dev eth0
winnowd_stop
ip -n "$net-sw" link set br0 type bridge mcast_snooping 0 mcast_querier 0

# A router between: given, by an address of the network and by the link's; and the kernel's.
ip -n "$net-sw" addr add fd77::fe/64 dev br0 nodad
ip link add far netns "$net-sw" mtu 1500 type veth peer name eth1 netns "$net-w3" mtu 1500
ip -n "$net-sw" addr add fd88::fe/64 dev far nodad
ip -n "$net-sw" link set far up
ip netns exec "$net-sw" sh -c 'echo 1 >/proc/sys/net/ipv6/conf/all/forwarding'
ip -n "$net-w3" addr del fd77::4/64 dev eth0
ip -n "$net-w3" addr add fd88::4/64 dev eth1 nodad
ip -n "$net-w3" link set eth1 up
ip -n "$net-w3" route add default via fd88::fe
ip netns exec "$net-sw" ethtool -K "$net-a0" tx-udp-segmentation off gso off >/dev/null 2>&1
for gateway in fd77::fe fe80::fe; do
	serve 10.77.0.101 --datapath dpdk --device eth0 --data-address fd77::200/64 --gateway $gateway
	OWN0=fd77::201/64 OWN1=fd77::202/64 works "by-${gateway//:/-}" 10.77.0.101:5555 "${sizes[@]}"
	winnowd_stop
done
ip -n "$net-a0" route add default via fd77::fe
serve '[fd77::101]' --datapath dpdk --device eth0
works kernels '[fd77::101]:5555' "${sizes[@]}"
winnowd_stop

# Used wrongly.
wrong() { # pattern option..
	refuses 1 "$1" ip netns exec "$net-a0" "$BUILD/winnowd" --insecure-no-key --listen 10.77.0.101:5555 --datapath dpdk --device eth0 "${@:2}"
}
wrong 'gateway is an IPv4 address, but the address for datagrams is IPv6' --data-address fd77::200/64 --gateway 10.77.0.1
wrong 'gateway is an IPv6 address, but the address for datagrams is IPv4' --data-address 10.77.0.200/24 --gateway fd77::fe
wrong 'data-address is valid on one link only, or a group' --data-address fe80::200/64
wrong 'data-address is valid on one link only, or a group' --data-address ff15::200/64
for text in fd77::200/129 '[fd77::200]/64' fd77::200%eth0/64 ::ffff:10.77.0.200/120; do
	refuses 2 "data-address: '.*' is not ADDR or ADDR/BITS" ip netns exec "$net-a0" "$BUILD/winnowd" --insecure-no-key \
		--listen 10.77.0.101:5555 --datapath dpdk --device eth0 --data-address "$text"
done
echo "all right"
