#!/usr/bin/env bash
# Explicit congestion notification: all datagrams may be marked, in both directions and families; what is marked on its way to the
# aggregator is counted there, and the worker is told of it; results are right, and with fewer datagrams under way.
. "$(dirname "$0")/lib.sh"
need_namespaces
[ -z "${WINNOWD_OPTIONS:-}" ] || { echo "only udp counts marks, and this runs with $WINNOWD_OPTIONS" && exit 77; }
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
ip netns exec "$net-w0" tc qdisc add dev eth0 clsact || fail "the kernel has no clsact"
ip netns exec "$net-w0" tc filter add dev eth0 egress bpf da pinned "$maps/up/winnow_mark"
ip netns exec "$net-sw" tc qdisc add dev "$net-w0" clsact
ip netns exec "$net-sw" tc filter add dev "$net-w0" egress bpf da pinned "$maps/down/winnow_mark"

for listen in 10.77.0.101 '[fd77::101]'; do
	winnowd_inside 0 --listen "$listen:5555" --insecure-no-key --threads 1
	job() { # option..
		bench_inside 2 "$listen:5555" 60 --insecure-no-key --size 8M --density 1 --iters 3 --warmup 1 --json "$@"
	}
	marks up 0
	forget
	for cast in 1 0; do job --multicast=$cast; done
	for way in up down; do
		[ "$(counted $way plain)" = 0 ] || fail "$listen: $(counted $way plain) datagrams $way may not be marked"
		[ "$(counted $way ect)" -gt 20000 ] || fail "$listen: only $(counted $way ect) datagrams went $way"
	done
	unmarked=$(json "$tmp/w0.out" time_us.median)
	[ "$(counted down told)" = 0 ] || fail "$listen: a worker was told of marks, and there were none"
	marks up 256
	job --multicast=0
	marked=$(counted up marked) told=$(counted down told)
	[ "$marked" -gt 1000 ] || fail "$listen: only $marked datagrams were marked"
	[[ $told -gt $((marked / 2)) && $told -le $marked ]] || fail "$listen: $marked datagrams were marked, and the worker was told of $told"
	echo "$listen: of $marked marked datagrams the worker was told of $told; an operation took $unmarked us, then $(json "$tmp/w0.out" time_us.median) us"
	winnowd_stop
done
