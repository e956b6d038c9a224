# shellcheck shell=bash
# links.sh - hosts with shaped links for benchmarks, in network namespaces; sourced, needs root
#
# A star: one bridge in a namespace of its own, workers w0.. at 10.77.0.1.. and aggregators a0.. at 10.77.0.101..,
# each on a veth. Both directions of a worker's link are shaped with TBF; an aggregator's are not: an appliance's
# port is as fast as its workers together.
. tests/e2e/switch.sh
net=wbench$$
links_made=()
links_burst=256kb links_queue=8mb # of a shaped link
links_bridge=br0                  # the switch that a host is at

# Peers and cross traffic get the TCP that most machines have, whatever this one's is: BBR does not answer loss. Where a
# namespace may not have cubic, it has reno.
links_tcp() { # namespace
	ip netns exec "$1" sysctl -qw net.ipv4.tcp_congestion_control="${LINKS_TCP:-cubic}" 2>/dev/null ||
		ip netns exec "$1" sysctl -qw net.ipv4.tcp_congestion_control=reno
}

links_host() { # name address rate mtu
	links_made+=("$net-$1")
	ip netns add "$net-$1"
	ip link add "$1" netns "$net-sw" mtu "$4" type veth peer name eth0 netns "$net-$1" mtu "$4"
	ip -n "$net-sw" link set "$1" master "$links_bridge" up
	ip -n "$net-$1" addr add "$2/24" dev eth0
	ip -n "$net-$1" link set lo up
	ip -n "$net-$1" link set eth0 up
	ip netns exec "$net-$1" ethtool -K eth0 gro on >/dev/null 2>&1 || true
	links_tcp "$net-$1"
	[ "$3" = 0 ] && return
	ip netns exec "$net-sw" tc qdisc add dev "$1" root tbf rate "$3" burst $links_burst limit $links_queue
	ip netns exec "$net-$1" tc qdisc add dev eth0 root tbf rate "$3" burst $links_burst limit $links_queue
}

links_up() { # workers rate mtu
	local i
	links_made+=("$net-sw")
	ip netns add "$net-sw"
	ip -n "$net-sw" link add br0 mtu "$3" type bridge mcast_snooping 0
	ip -n "$net-sw" link set br0 up
	switch_passes_all
	for ((i = 0; i < $1; i++)); do links_host "w$i" "10.77.0.$((i + 1))" "$2" "$3"; done
	links_host a0 10.77.0.101 0 "$3"
}

links_loss() { # per cent of UDP packets, at every host's input
	local host
	for host in "${links_made[@]}"; do
		[ "$host" = "$net-sw" ] && continue
		ip netns exec "$host" iptables -F INPUT
		[ "$1" = 0 ] || ip netns exec "$host" iptables -A INPUT -p udp -m statistic --mode random \
			--probability "$(awk "BEGIN { print $1 / 100 }")" -j DROP
	done
}

links_down() {
	local host
	for host in "${links_made[@]}"; do ip netns del "$host" 2>/dev/null; done
	links_made=()
}

on() { # host command..
	ip netns exec "$net-$1" "${@:2}"
}
