#!/usr/bin/env bash
# Senders on virtual links leave it to a network card to cut their datagrams apart, and there is none. DPDK's packet socket has them cut
# by the kernel, on its own; where it may not, the job ends within seconds with the command that helps. XDP in generic mode sees
# them whole and leaves them to user space: winnow status says so, and not when they come one by one.
# release: another data path
. "$(dirname "$0")/lib.sh"
need_namespaces
hosts_up 3 1 1500
server=10.77.0.101:5555 metrics=10.77.0.101:9555
segmentation() { # on or off, at the workers
	local host
	for host in w0 w1 w2; do inside $host ethtool -K eth0 tx-udp-segmentation "$1" >/dev/null || fail "cannot switch segmentation $1"; done
}
work() { # name option..: three workers that go on for long
	job "$1" "$(everywhere 3 $server)" --insecure-no-key --size 3M --iters 1000000 "${@:2}"
}
segmentation on

if has_dpdk; then
	for mtu in 1500 9000; do
		hosts_mtu $mtu w0 w1 w2 a0
		winnowd_inside 0 --insecure-no-key --threads 2 --datapath dpdk --device eth0 --metrics $metrics
		grep -q 'event=port .*eth0 is a veth: an XDP program' "$tmp/winnowd-a0.log" || fail "dpdk does not say what it does to the device"
		bench_inside 3 $server 60 --insecure-no-key --size 3M --iters 10 --density 1,0.1
		errors=$(inside w0 bash -c ". tests/e2e/lib.sh; metric $metrics winnow_net_rx_errors_total")
		[ "$errors" = 0 ] || fail "MTU $mtu: $errors frames came whole"
		# A worker that takes DPDK has the same trouble, and the same remedy.
		start d0 inside w0 "$BUILD/winnow" bench --aggregators $server --job d --insecure-no-key --rank 0 --world 2 --check --size 3M \
			--datapath dpdk --device eth0
		start d1 inside w1 "$BUILD/winnow" bench --aggregators $server --job d --insecure-no-key --rank 1 --world 2 --check --size 3M
		for rank in 0 1; do expect d$rank 60 0; done
		winnowd_stop
		inside a0 ip link show eth0 | seen xdp && fail "a program is left on the device"
	done
	hosts_mtu 1500 w0 w1 w2 a0
	# Without the right to load a program.
	INSIDE="setpriv --bounding-set -bpf,-sys_admin --inh-caps -bpf,-sys_admin" winnowd_inside 0 --insecure-no-key --datapath dpdk --device eth0 \
		--metrics $metrics
	[ "$(grep -cE 'level=warn .*eth0 is a veth, and no XDP program can be put there .*ethtool -K IFACE tx-udp-segmentation off' "$tmp/winnowd-a0.log")" = 1 ] ||
		fail "it is not said, once, that super-packets will be lost: $(cat "$tmp/winnowd-a0.log")"
	work lost
	job_ends lost 15 1 'datagrams of rank [0-2] \(.*10.77.0.[1-3]:[0-9]+\).* arrive merged and are lost .*ethtool -K IFACE tx-udp-segmentation off'
	grep -q 'event=trouble job=lost .*arrive merged' "$tmp/winnowd-a0.log" || fail "the log does not tell before the job ends"
	inside w0 "$BUILD/winnow" status $metrics >"$tmp/status.out" || fail "winnow status"
	grep -q 'last failure, .*arrive merged' "$tmp/status.out" || fail "winnow status does not tell: $(cat "$tmp/status.out")"
	segmentation off # as it says
	bench_inside 3 $server 60 --insecure-no-key --size 3M --iters 10 --density 1,0.1
	winnowd_stop
fi

# XDP in generic mode.
degraded() { # says winnow status that it is not fast?
	inside w0 "$BUILD/winnow" status $metrics >"$tmp/status.out" && return 1
	grep -qE '! job slow: the kernel has added [0-9]+ of [0-9]+ PUSHes: .*tx-udp-segmentation off' "$tmp/status.out"
}
winnowd_inside 0 --insecure-no-key --datapath xdp --device eth0 --xdp-mode generic --metrics $metrics
segmentation on
work slow --dtype i32 --density 0.5
soon 15 degraded || fail "winnow status does not say that the kernel adds little: $(cat "$tmp/status.out")"
[ "$(grep -c 'event=trouble job=slow .*the kernel has added' "$tmp/winnowd-a0.log")" = 1 ] || fail "the log does not say, once, that the kernel adds little"
grep -qE '^  xdp generic: .*merged [0-9]' "$tmp/status.out" || fail "no counter of what came several in one"
segmentation off
healthy() { inside w0 "$BUILD/winnow" status $metrics >"$tmp/status.out"; }
soon 20 healthy || fail "what winnow status recommends does not help: $(cat "$tmp/status.out")"
for rank in 0 1 2; do [ ! -e "$tmp/slow$rank.status" ] || fail "the job has ended: $(cat "$tmp/slow$rank.err")"; done
echo "all right"
