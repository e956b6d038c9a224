# shellcheck shell=bash
# xdp.sh - the XDP fast path: what a frame costs, alone and beside udp; latency; shaped links. Sourced by bench.sh

xdp_native="--datapath xdp --device eth0 --xdp-mode native"

xdp_switch() { # native XDP_TX on a veth arrives only if its other end has a program, too
	ip netns exec "$net-sw" ip link set dev a0 xdp obj "$build/tests/e2e/pass.bpf.o" sec xdp
}

# The CPU time of the aggregator during a command. `switch`, `others`: napi_threads(); `auth`: options of all.
cost() { # name, daemon options, command..: which writes $raw/cost-NAME.json
	local daemon napi
	# shellcheck disable=SC2086 # lists
	serve a0 10.77.0.101:5555 $auth $2
	sleep 1
	napi=$(napi_of_aggregator)
	python3 tests/bench/cpu.py begin "$raw/cost-$1.cpu" "$daemon" "$napi" "$switch"
	"${@:3}"
	python3 tests/bench/cpu.py end "$raw/cost-$1.cpu" "$raw/cost-$1.json" "$daemon" "$napi" "$switch"
	stop "$daemon"
}

xdp_cost() { # name, daemon options, bench options..: of a job of 4 workers
	# shellcheck disable=SC2086 # a list
	cost "$1" "$2" workers 4 "$raw/cost-$1.json" 10.77.0.101:5555 $auth "${@:3}"
}

cost_of() { # name, PUSHes of 1 KiB, command.. that sends them
	echo "{\"iters\": 0, \"world\": 1, \"block\": 256, \"bytes\": $(($2 * 1024))}" >"$raw/cost-$1.json"
	"${@:3}"
	sleep 0.5
}

# What it takes to be sent a datagram that nobody wants: the driver's part of the cost, and what garbage costs.
flood_cost() { # name, daemon options
	local count=1720320
	cost "$1" "$2" cost_of "$1" $count flood $count
}
flood() { # datagrams, of a PUSH's size, which leave as PUSHes do
	on w0 python3 -c 'import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_UDP, 103, 1056)  # UDP_SEGMENT
s.connect(("10.77.0.101", 5555))
for _ in range(int(sys.argv[1]) // 60): s.send(b"x" * 1056 * 60)' "$1"
}

# Each device's receiving (NAPI) gets a kernel thread, so that its time is nobody else's. Sets `switch`, those of the
# switch's ports towards workers, and `others`, all that are not of the aggregator's device.
napi_threads() {
	local host
	for host in w0 w1 w2 w3; do
		on $host sh -c 'echo 1 >/sys/class/net/eth0/threaded'
		ip netns exec "$net-sw" sh -c "ethtool -K $host gro on; echo 1 >/sys/class/net/$host/threaded"
	done
	switch=$(pgrep '^napi/w' | tr '\n' ' ')
	ip netns exec "$net-sw" sh -c "ethtool -K a0 gro on tso off; echo 1 >/sys/class/net/a0/threaded"
	others=" $(pgrep '^napi/' | tr '\n' ' ') "
	on a0 sh -c 'echo 1 >/sys/class/net/eth0/threaded'
}

napi_of_aggregator() {
	local pid
	for pid in $(pgrep '^napi/'); do [[ $others == *" $pid "* ]] || echo "$pid"; done | tr '\n' ' '
}

# A veth whose one end is the aggregator's device, and whose other end, `wire`, the workers of nic.c. The device is given
# XDP frames, as a NIC's driver is: no sk_buff has to be made into one.
nic_up() {
	links_made+=("$net-nic" "$net-a0")
	ip netns add "$net-nic"
	ip netns add "$net-a0"
	ip link add wire netns "$net-nic" mtu 1500 type veth peer name eth0 netns "$net-a0" mtu 1500
	ip -n "$net-nic" addr add 10.77.0.1/24 dev wire
	ip -n "$net-a0" addr add 10.77.0.101/24 dev eth0
	ip -n "$net-nic" link set wire up
	ip -n "$net-a0" link set eth0 up
	on nic sh -c 'ethtool -K wire gro on; echo 1 >/sys/class/net/wire/threaded'
	switch=$(pgrep '^napi/wire' | tr '\n' ' ')
	others=" $(pgrep '^napi/' | tr '\n' ' ') "
	on a0 sh -c 'ethtool -K eth0 gro on; echo 1 >/sys/class/net/eth0/threaded'
}

# Without GRO a veth takes frames only while it has a program; what XDP_TX sends arrives only if the other end has one,
# which takes the sockets' super-packets apart: so udp does without there.
nic_cost() { # name, daemon options, checksums
	local name=$1 count=2097152 auth=--insecure-no-key
	on nic ip link set dev wire xdp off
	on a0 sh -c 'ip link set dev eth0 xdp off; ethtool -K eth0 gro on'
	case $name in
	*no-gro*) on a0 sh -c "ip link set dev eth0 xdp obj '$build/tests/e2e/pass.bpf.o' sec xdp; ethtool -K eth0 gro off" ;;
	*xdp*) on nic ip link set dev wire xdp obj "$build/tests/e2e/pass.bpf.o" sec xdp ;;
	esac
	cost "$name" "$2" cost_of "$name" $count \
		on nic "$build/tests/bench/nic" 10.77.0.101:5555 wire "$(on a0 cat /sys/class/net/eth0/address)" $count "$3"
}

part_nic() {
	local switch others round
	echo
	echo "## The same, delivered as a NIC's driver delivers: as XDP frames"
	nic_up
	for round in 1 2 3; do
		nic_cost nic-udp-no-gro.$round "" verified
		nic_cost nic-udp-no-gro-checksum.$round "" checksum
		nic_cost nic-udp-checksum.$round "" checksum
		nic_cost nic-xdp.$round "$xdp_native" verified
	done
	links_down
	python3 tests/bench/cpu.py table "$raw" nic-udp-no-gro nic-udp-no-gro-checksum nic-udp-checksum nic-xdp
}

xdp_costs() {
	local host switch others stats_were auth=--insecure-no-key job=(--dtype i32 --size "${COST_SIZE:-20M}" --density 1 --iters 20 --warmup 1)
	echo
	echo "## The program alone: ns a PUSH, in the kernel, without a device"
	"$build/tests/bench/bench_xdp"
	echo
	echo "## The aggregator's CPU time in us a PUSH: 4 workers, dense i32, 1,024 bytes a datagram, delivered one by one, unshaped"
	links_up 4 0 1500
	xdp_switch
	(umask 077 && "$build/winnow" key >"$raw/cost-key")
	for host in w0 w1 w2 w3; do on $host ethtool -K eth0 tx-udp-segmentation off tso off >/dev/null; done
	napi_threads
	stats_were=$(sysctl -n kernel.bpf_stats_enabled)
	sysctl -q kernel.bpf_stats_enabled=1
	on a0 ethtool -K eth0 gro off
	xdp_cost udp-no-gro "" "${job[@]}"
	flood_cost udp-no-gro-garbage ""
	on a0 ethtool -K eth0 gro on
	for host in udp xdp; do
		xdp_cost $host "$([ $host = udp ] || echo "$xdp_native")" "${job[@]}"
		xdp_cost $host-unicast "--multicast no $([ $host = udp ] || echo "$xdp_native")" "${job[@]}"
		auth="--key-file $raw/cost-key" xdp_cost $host-sealed "$([ $host = udp ] || echo "$xdp_native")" "${job[@]}"
	done
	flood_cost udp-garbage ""
	flood_cost xdp-garbage "$xdp_native"
	# A packet socket would see what GRO has put together.
	on a0 ethtool -K eth0 gro off
	xdp_cost dpdk-packet "--datapath dpdk --device eth0" "${job[@]}"
	huge_need 300
	WINNOW_EAL="--in-memory --no-pci --no-telemetry --vdev=net_af_xdp0,iface=eth0,xdp_prog=$build/ebpf/redirect.bpf.o" \
		xdp_cost dpdk-xdp "--datapath dpdk --device eth0" "${job[@]}"
	huge_back
	sysctl -q kernel.bpf_stats_enabled="$stats_were"
	links_down
	rm "$raw/cost-key"
	python3 tests/bench/cpu.py table "$raw" udp-no-gro udp dpdk-packet dpdk-xdp xdp
	python3 tests/bench/cpu.py table "$raw" udp-unicast xdp-unicast
	python3 tests/bench/cpu.py table "$raw" udp udp-sealed
	python3 tests/bench/cpu.py table "$raw" xdp xdp-sealed
	python3 tests/bench/cpu.py table "$raw" udp-no-gro-garbage udp-garbage xdp-garbage
}

part_reply() {
	echo
	echo "## One frame: 1 KiB of f32, 4 workers in namespaces, unshaped, time in us"
	printf '%-34s %10s %10s %10s\n' way p50 p99 min
	links_up 4 0 1500
	xdp_switch
	reply_row "udp, in the announcement (f32)" "" --wire f32
	reply_row "udp, a frame (fixed32)" "" --wire fixed32
	reply_row "xdp native, a frame (fixed32)" "$xdp_native" --wire fixed32
	reply_row "xdp generic, a frame (fixed32)" "--datapath xdp --device eth0 --xdp-mode generic" --wire fixed32
	reply_row "xdp native, auto (f32, likewise)" "$xdp_native"
	links_down
}

reply_row() { # name, daemon options, bench options..
	local f=$raw/reply.json name=$1
	DAEMON_OPTIONS=$2
	shift 2
	ITERS=3000 winnow 4 "$f" --size 1K --density 1 "$@"
	DAEMON_OPTIONS=
	python3 - "$f" "$name" <<'P'
import json, sys
t = json.load(open(sys.argv[1]))["time_us"]
print("%-34s %10.1f %10.1f %10.1f" % (sys.argv[2], t["median"], t["p99"], t["min"]))
P
}

part_xdp() {
	echo
	echo "## Time against the bound with xdp (native, fixed32): 4 workers, random overlap"
	bound_head
	local mtu
	for mtu in 3498 1500; do
		links_up 4 "$RATE" $mtu
		xdp_switch
		DAEMON_OPTIONS=$xdp_native bound_rows xdp $mtu "$([ $mtu = 3498 ] && echo 768 || echo 256)"
		links_down
	done
}
