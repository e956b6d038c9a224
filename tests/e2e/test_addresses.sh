#!/usr/bin/env bash
# An aggregator that is reached by several of its addresses: each worker is answered from the one that it writes to. Loopback
# beside the network, two networks, two addresses of one interface; sockets, XDP and DPDK; multicast to those it reaches.
. "$(dirname "$0")/lib.sh"
need_namespaces
hosts_up 3 1 1500
# shellcheck disable=SC2054 # lists of sizes
common=(--insecure-no-key --iters 2 --warmup 1 --json --size 4K,1M --density 1,0.1)
own() { [ "$1" != 1 ] || sleep 0.2; } # rank 0 opens the job
works() { # name, HOST=ADDRESS of each rank's host and of the aggregator's address that it uses; option..
	local place places=""
	for place in $2; do places+="$place:5555 "; done
	job "$1" "$places" --join-timeout 15 "${common[@]}" "${@:3}"
	job_ends "$1" 60
}
serve() { # option..: at all of its addresses
	winnowd_inside 0 --listen 0.0.0.0:5555 --insecure-no-key --threads 2 "$@"
}

# A second network, to w1 alone, and a second address on the first one.
ip link add two netns "$net-w1" mtu 1500 type veth peer name eth1 netns "$net-a0" mtu 1500
ip -n "$net-w1" addr add 10.88.0.1/24 dev two
ip -n "$net-a0" addr add 10.88.0.101/24 dev eth1
ip -n "$net-a0" addr add 10.77.0.111/24 dev eth0
ip -n "$net-w1" link set two up
ip -n "$net-a0" link set eth1 up

serve
works loop "a0=127.0.0.1 a0=127.0.1.1"
works mixed "a0=127.0.0.1 w0=10.77.0.101 w1=10.77.0.101 w2=10.77.0.101"
has mixed multicast 0 1 1 1 # the group goes where most workers are
works other "w0=10.77.0.101 a0=127.0.1.1"
has other multicast 1 0
works nets "w0=10.77.0.101 w1=10.88.0.101 w2=10.77.0.101"
has nets multicast 1 0 1
works second "w0=10.77.0.111 w1=10.77.0.101 w2=10.77.0.101"
has second multicast 1
works unicast "w0=10.77.0.111 w1=10.88.0.101 a0=127.0.0.1" --multicast=0
has unicast multicast 0
winnowd_stop

ip netns exec "$net-sw" ip link set dev "$net-a0" xdp obj "$BUILD/tests/e2e/pass.bpf.o" sec xdp || fail "cannot attach a program"
for mode in native generic; do
	serve --datapath xdp --device eth0 --xdp-mode $mode
	works "mixed-$mode" "a0=127.0.0.1 w0=10.77.0.101 w1=10.77.0.101 w2=10.77.0.101" --wire fixed32
	has "mixed-$mode" multicast 0 1 1 1
	works "nets-$mode" "w0=10.77.0.101 w1=10.88.0.101 w2=10.77.0.111" --wire fixed32
	has "nets-$mode" multicast 1 0 1
	works "all-$mode" "w0=10.77.0.101 w1=10.77.0.111 w2=10.77.0.111" --wire fixed32
	winnowd_stop
done
ip -n "$net-sw" link set dev "$net-a0" xdp off

if has_dpdk; then
	# The port has one address, and workers are told which; what they have connected to is the kernel's affair.
	serve --datapath dpdk --device eth0
	works dpdk "w0=10.77.0.101 w1=10.77.0.111 w2=10.77.0.101"
	winnowd_stop
fi
echo "all right"
