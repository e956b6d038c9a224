#!/usr/bin/env bash
# Explicit congestion notification, over sockets, DPDK and past an XDP program: all datagrams may be marked, in both directions and families; what is
# marked on its way to the aggregator is counted there, and the worker is told of it; what is marked on its way back the worker counts
# itself; results are right, and with fewer datagrams under way.
# release: it is over all datapaths
. "$(dirname "$0")/lib.sh"
need_namespaces
[ -z "${WINNOWD_OPTIONS:-}" ] || { echo "chooses the datapaths itself" && exit 77; }
hosts_up 2 1 1500
hosts_six 2
maps=$(mktemp -d -t wtXXXXXX) # libbpf takes no dots in a path
mount -t bpf bpf "$maps" || fail "cannot mount a file system for programs"
trap 'stop_all || bad=1; umount "$maps"; rmdir "$maps"; [ -z "${bad:-}" ] || exit 1' EXIT

marks() { # up|down parts of 1024: on the way from, or to, host w0
	# shellcheck disable=SC2046 # bytes
	bpftool map update pinned "$maps/$1/rules" key 0 0 0 0 value $((${2} % 256)) $((${2} / 256)) $(printf '0 %.0s' {1..22})
}
counted() { # up|down plain|ect|ce|marked|told
	bpftool -j map dump pinned "$maps/$1/counts" | python3 -c 'import json, struct, sys
print(struct.unpack("<Q", bytes(int(b, 16) for b in json.load(sys.stdin)[["plain", "ect", "ce", "marked", "told"].index(sys.argv[1])]["value"]))[0])' "$2"
}
forget() { # what was counted
	local way key
	for way in up down; do
		for key in 0 1 2 3 4; do bpftool map update pinned "$maps/$way/counts" key $key 0 0 0 value 0 0 0 0 0 0 0 0; done
	done
}
for way in up down; do
	bpftool prog loadall "$BUILD/tests/e2e/mark.bpf.o" "$maps/$way" pinmaps "$maps/$way" || fail "cannot load a program"
done
ip netns exec "$net-sw" tc qdisc add dev "$net-w0" clsact || fail "the kernel has no clsact"
ip netns exec "$net-sw" tc filter add dev "$net-w0" ingress bpf da pinned "$maps/up/winnow_mark" # a packet socket goes past egress
ip netns exec "$net-sw" tc filter add dev "$net-w0" egress bpf da pinned "$maps/down/winnow_mark"

ecn() { # datapath aggregator option..: worker 0 has the same, if it has such
	local datapath=$1 listen=$2 way unmarked marked told added
	shift 2
	local what="$datapath at $listen" device=() own=()
	[ "$datapath" = udp ] || device=(--datapath "$datapath" --device eth0)
	[ "$datapath" != dpdk ] || own=("${device[@]}")
	winnowd_inside 0 --listen "$listen:5555" --insecure-no-key --threads 1 --metrics 127.0.0.1:9555 "${device[@]}"
	own() { ((${#own[@]} == 0 || $1 != 0)) || echo "${own[@]}"; }
	works() { bench_inside 2 "$listen:5555" 60 --insecure-no-key --size 4M --density 1 --iters 3 --warmup 1 --json "$@"; } # option..
	forget
	for cast in 1 0; do works --multicast=$cast "$@"; done
	for way in up down; do
		[ "$(counted $way plain)" = 0 ] || fail "$what: $(counted $way plain) datagrams $way may not be marked"
		[ "$(counted $way ect)" -gt 15000 ] || fail "$what: only $(counted $way ect) datagrams went $way"
	done
	unmarked=$(json "$tmp/w0.out" time_us.median)
	[ "$(counted down told)" = 0 ] || fail "$what: a worker was told of marks, and there were none"
	marks up 256
	works --multicast=1 "$@"
	marks up 0
	marked=$(counted up marked) told=$(counted down told)
	[ "$marked" -gt 1000 ] || fail "$what: only $marked datagrams were marked"
	[[ $told -gt $((marked / 2)) && $told -le $marked ]] || fail "$what: $marked datagrams were marked, and the worker was told of $told"
	[ "$(json "$tmp/w0.out" path.received_marked)" = 0 ] || fail "$what: the worker saw marks on the way back, and there were none"
	echo "$what: of $marked marked datagrams the worker was told of $told; an operation took $unmarked us, then $(json "$tmp/w0.out" time_us.median) us"
	marks down 256
	forget
	works --multicast=1 "$@"
	marks down 0
	marked=$(counted down marked) told=$(json "$tmp/w0.out" path.received_marked)
	[ "$marked" -gt 1000 ] || fail "$what: only $marked datagrams were marked on the way back"
	[[ $told -gt $((marked / 2)) && $told -le $marked ]] || fail "$what: $marked datagrams were marked on the way back, and the worker saw $told"
	added=$(inside a0 bash -c "$(declare -f metric); metric \"\$@\"" metric 127.0.0.1:9555 'winnow_xdp_packets_total{verdict="added"}')
	[[ $datapath != xdp || ${added%.*} -gt 60000 ]] || fail "$what: the kernel has added only $added"
	winnowd_stop
}
marks up 0
for listen in 10.77.0.101 '[fd77::101]'; do
	ecn udp "$listen"
	! has_dpdk || ecn dpdk "$listen"
done

# The kernel adds PUSHes that winnowd never sees; their marks count all the same, and the RESULTs made of them may be marked.
ip netns exec "$net-sw" ip link set dev "$net-a0" xdp obj "$BUILD/tests/e2e/pass.bpf.o" sec xdp || fail "cannot attach a program"
for listen in 10.77.0.101 '[fd77::101]'; do
	ecn xdp "$listen" --dtype i32
done
