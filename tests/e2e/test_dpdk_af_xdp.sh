#!/usr/bin/env bash
# AF_XDP sockets beneath DPDK, with our own program that takes Winnow's datagrams out: workers with sockets and with DPDK,
# multicast and unicast, loss. The control connection and all else stay with the kernel on the same interface.
. "$(dirname "$0")/lib.sh"
need_dpdk
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 # DPDK's driver never closes the program's file that it has opened
hosts_up 3 1 3498
reserve 320
# A veth has no "combined" queues to choose from: one is heard.
inside sw ethtool -L "$net-a0" rx 1 tx 1 || fail "cannot set the number of queues"
inside a0 ethtool -L eth0 rx 1 tx 1 || fail "cannot set the number of queues"
eal="--in-memory --no-pci --vdev=net_af_xdp0,iface=eth0,xdp_prog=$BUILD/ebpf/redirect.bpf.o"
winnowd_inside 0 --insecure-no-key --threads 2 --datapath dpdk --eal "$eal" --metrics 10.77.0.101:9555
at=10.77.0.3/24
own() { [ "$1" != 2 ] || echo "--datapath dpdk --device eth0 --data-address $at"; }
work() { bench_inside 3 10.77.0.101:5555 60 --insecure-no-key --json --iters 2 --warmup 1 "$@"; }
work --size 0,4,4K,3M --density 1,0.1,0
has w multicast 1
has w payload 3470
work --size 1M --multicast=0 --wire fixed32
for host in w0 w1 w2 a0; do lossy $host; done
work --size 4K,3M --density 1,0.05
for host in w0 w1 w2 a0; do lossy $host off; done
[ "$(inside w0 bash -c ". tests/e2e/lib.sh; metric 10.77.0.101:9555 winnow_net_rx_errors_total")" = 0 ] || fail "frames were damaged"
winnowd_stop
# It has given its privileges up, and cannot take the program off: the next one does, and also after a violent end. The program
# knows our datagrams by IPv6 as well.
hosts_six 3
at=fd77::3/64
for signal in KILL TERM; do
	winnowd_inside 0 --insecure-no-key --threads 2 --datapath dpdk --eal "$eal" --data-address fd77::101/64
	grep -q event=swept "$tmp/winnowd-a0.log" || fail "nothing was left on the device, or it stayed"
	work --size 4K,3M --density 1,0.1
	has w multicast 1
	has w payload 3450
	kill -$signal "$DAEMON"
	wait "$DAEMON"
	status=$?
	[ $status = "$([ $signal = TERM ] && echo 0 || echo 137)" ] || fail "after SIG$signal winnowd ended with status $status"
done
inside a0 ip link set eth0 xdp off
# It needs huge pages, and all of the interface's queues; it says so.
refuses 1 'AF_XDP needs huge pages' timeout 20 ip netns exec "$net-a0" "$BUILD/winnowd" --insecure-no-key --listen 10.77.0.101:5555 --threads 2 \
	--datapath dpdk --eal "${eal/--in-memory/--no-shconf --no-huge -m 256}"
inside a0 ethtool -L eth0 rx 2 tx 2 || fail "cannot set the number of queues"
refuses 1 'DPDK has no port.*queue count 2 is larger' timeout 20 ip netns exec "$net-a0" "$BUILD/winnowd" --insecure-no-key \
	--listen 10.77.0.101:5555 --datapath dpdk --eal "${eal/eth0,/eth0,queue_count=2,}"
refuses 1 'eth0 has 2 receive queues, but only 1' timeout 20 ip netns exec "$net-a0" "$BUILD/winnowd" --insecure-no-key \
	--listen 10.77.0.101:5555 --threads 1 --datapath dpdk --eal "$eal"
echo "all right"
