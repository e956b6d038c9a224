#!/usr/bin/env bash
# Two lcores, each thread on its own CPU, with huge pages that the test reserves and gives back, and without huge pages; a
# tap device, whose port has queues of its own; addresses that the kernel does not have: ARP by ourselves.
# release: another data path
. "$(dirname "$0")/lib.sh"
need_dpdk
hosts_up 2 1 1500
cpus=$(awk '/^Cpus_allowed_list/ { print $2 }' /proc/self/status)
on_two_cpus() { # each of winnowd's data threads is bound to one CPU, and not to the same
	local task list=()
	for task in /proc/"$DAEMON"/task/*; do
		[ "$(cat "$task/comm")" != winnow-data ] || list+=("$(awk '/^Cpus_allowed_list/ { print $2 }' "$task/status")")
	done
	[ ${#list[@]} = 2 ] || fail "there are ${#list[@]} data threads"
	[ "$(nproc)" -lt 2 ] || [ "${list[0]}" != "${list[1]}" ] || fail "both threads run on CPUs ${list[0]} of $cpus"
	[[ "${list[*]}" != *[-,]* ]] || fail "threads are not bound to a CPU each: ${list[*]}"
}
own() { [ "$1" = 0 ] || echo "--datapath dpdk --device eth0"; }
work() {
	bench_inside 2 10.77.0.101:5555 60 --insecure-no-key --json --size 4K,3M --density 1,0.1 --iters 2
	has w channels 2
}
serve() { # option..
	winnowd_inside 0 --insecure-no-key --datapath dpdk --threads 2 "$@"
}
port=--vdev=net_af_packet0,iface=eth0,framesz=2048,blocksz=65536,framecnt=4096

# Lcore 0 is the main one; the threads take those after it.
lcores="--lcores (0)@0,(1)@0,(2)@$(($(nproc) > 1 ? 1 : 0))"
serve --eal "$lcores --no-shconf --no-huge --no-pci -m 256 $port"
on_two_cpus
work
uses_huge_pages && fail "huge pages in spite of --no-huge"
winnowd_stop

reserve 320
serve --eal "$lcores --in-memory --no-pci $port"
uses_huge_pages || fail "winnowd uses no huge pages"
on_two_cpus
work
winnowd_stop
# Without arguments they are found, and used.
serve --device eth0
uses_huge_pages || fail "winnowd by itself uses no huge pages"
work
winnowd_stop
reserve -320

# A tap is a host of its own behind the switch: no kernel answers for its address.
ip -n "$net-a0" link add br1 mtu 1500 type bridge mcast_snooping 0
ip -n "$net-a0" addr del 10.77.0.101/24 dev eth0
ip -n "$net-a0" link set eth0 master br1
ip -n "$net-a0" addr add 10.77.0.101/24 dev br1
ip -n "$net-a0" link set br1 up
serve --data-address 10.77.0.102/24 --eal "--no-shconf --no-huge --no-pci -m 256 --vdev=net_tap0,iface=dtap0,mac=fixed" --payload-max 1472
# The port and the kernel's end of it begin with the same MAC address.
ip -n "$net-a0" link set dtap0 address 02:77:00:00:00:aa
ip -n "$net-a0" link set dtap0 master br1 up
whole_frames a0
work
[ "$(inside w0 ip neigh show 10.77.0.102 | grep -c lladdr)" = 1 ] || fail "ARP for the tap's address was not answered"
winnowd_stop
echo "all right"
