#!/usr/bin/env bash
# IPv6, alone and beside IPv4: control and data, multicast, narrow paths, loss; names with several addresses; addresses of a link;
# a daemon at [::]; status and metrics. Every element is checked on every worker.
. "$(dirname "$0")/lib.sh"
need_namespaces
hosts_up 4 1 1500
export WINNOW_KEY=correct-horse-battery
# shellcheck disable=SC2054 # lists of sizes
common=(--iters 2 --warmup 1 --json --size 4K,1M --density 1,0.1)
hosts_six 4
serve() { # ADDR, option..: with a port to each
	winnowd_inside 0 --listen "$1:5555" --metrics "$1:9555" --threads 2 "${@:2}"
}
six='[fd77::101]:5555' four=10.77.0.101:5555
of_all=$(everywhere 4 "$six")
works() { # name places option..
	job "$1" "$2" --join-timeout 15 "${common[@]}" "${@:3}"
	job_ends "$1" 60
}

# IPv6 alone: what an MTU of 1500 carries, results once to the group, and to those whom it reaches.
serve '[fd77::101]'
works six "$of_all"
has six multicast 1
has six payload 1452
works copies "$of_all" --multicast=0
has copies multicast 0
inside w2 ip6tables -A INPUT -d ff00::/8 -p udp -j DROP
works some "$of_all"
has some multicast 1 1 0 1
ip -n "$net-sw" link set "$net-w3" mtu 1400
works narrow "$of_all"
[ "$(json "$tmp/narrow0.out" payload)" -le 1352 ] || fail "payload is larger than the path"
ip -n "$net-sw" link set "$net-w3" mtu 1500
for host in w0 w1 w2 w3 a0; do inside $host ip6tables -A INPUT -p udp -m statistic --mode random --probability 0.03 -j DROP; done
works lossy "$of_all"
for host in w0 w1 w2 w3 a0; do inside $host ip6tables -F INPUT; done
winnowd_stop

# Nothing is cut into fragments: what has become too large is told.
serve '[fd77::101]'
job shrinks "w0=$six w1=$six" --size 1M --block 350 --iters 1000000 --multicast=0
await 'event=job_started job=shrinks ' "$tmp/winnowd-a0.log"
sleep 0.3
ip -n "$net-a0" link set eth0 mtu 1300
job_ends shrinks 20 1 "cannot send to rank [01] .*Message too long .* its interface's MTU is now smaller than the 1500 that the job began with"
ip -n "$net-a0" link set eth0 mtu 1500
winnowd_stop

# Both families at one daemon, whatever the system's default is; the group is of the one that most workers use.
inside a0 sh -c 'echo 1 >/proc/sys/net/ipv6/bindv6only'
serve '[::]'
works both "w0=$four w1=$six w2=$four w3=$six"
works most "w0=$four w1=$six w2=$six w3=$six"
has most multicast 1 # a host of both hears it, however its worker is connected
works few "w0=$four w1=$four w2=$four w3=$six"
has few multicast 1
works four "w0=$four w1=$four w2=$four w3=$four"
has four payload 1472
has four multicast 1

# A second address: answers come from the one that was written to.
ip -n "$net-a0" addr add fd77::111/64 dev eth0 nodad
works second "w0=[fd77::111]:5555 w1=$six w2=[fd77::111]:5555"
has second multicast 1

# A second network, to w1 alone: a group is sent to by the interface of the address that its workers have connected to.
ip link add two netns "$net-w1" mtu 1500 type veth peer name eth1 netns "$net-a0" mtu 1500
ip -n "$net-w1" addr add fd88::1/64 dev two nodad
ip -n "$net-a0" addr add fd88::101/64 dev eth1 nodad
ip -n "$net-w1" link set two up
ip -n "$net-a0" link set eth1 up
works nets "w0=$six w1=[fd88::101]:5555 w2=$six"
has nets multicast 1 0 1
works alone "w1=[fd88::101]:5555"
has alone multicast 1 # by its interface

# An address that only the link knows.
link=$(ip -n "$net-a0" -6 -o addr show dev eth0 scope link | sed -n 's/.* \(fe80[^/]*\).*/\1/p')
works link "w0=[$link%eth0]:5555 w1=[$link%eth0]:5555 w2=$six"

# A name: its addresses in turn until one answers. Of these the IPv6 ones come first, and there nobody is.
named() { # rank, text of /etc/hosts, command..
	printf '%s\n' "$2" >"$tmp/hosts$1"
	# shellcheck disable=SC2016 # the inner shell's
	inside "w$1" sh -c 'mount --bind "$0" /etc/hosts && exec "$@"' "$tmp/hosts$1" "${@:3}"
}
several=$'fd77::dead agg\nfd77::2 agg\n10.77.0.101 agg'
start named0 named 0 "$several" "$BUILD/winnow" bench --aggregators agg:5555 --job named --rank 0 --world 2 --join-timeout 20 "${common[@]}"
start named1 inside w1 "$BUILD/winnow" bench --aggregators '[fd77::101]:5555' --job named --rank 1 --world 2 --join-timeout 20 "${common[@]}"
for rank in 0 1; do expect named$rank 60 0; done
refuses 1 'aggregator agg:5555: no answer from fd77::2, 10.77.0.2: Connection refused' \
	named 0 $'fd77::2 agg\n10.77.0.2 agg' "$BUILD/winnow" bench --aggregators agg:5555 --job none --rank 0 --world 1 --join-timeout 1
# The name is known later.
start later named 0 '127.0.0.1 localhost' "$BUILD/winnow" bench --aggregators agg:5555 --job later --rank 0 --world 1 "${common[@]}"
sleep 2
echo 'fd77::101 agg' >>"$tmp/hosts0"
expect later 60 0
# A name service that does not answer takes no more time than there is.
start dns inside w0 python3 -c 'import socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("127.0.0.9", 53)); print("up", flush=True); time.sleep(60)'
await up "$tmp/dns.out"
echo 'nameserver 127.0.0.9' >"$tmp/resolv"
begun=$SECONDS
# shellcheck disable=SC2016 # the inner shell's
refuses 1 "cannot find host of 'agg.example:5555': no answer" inside w0 sh -c 'mount --bind "$0" /etc/resolv.conf && exec "$@"' "$tmp/resolv" \
	"$BUILD/winnow" bench --aggregators agg.example:5555 --job none --rank 0 --world 1 --join-timeout 2
[ $((SECONDS - begun)) -le 4 ] || fail "a worker has waited $((SECONDS - begun)) s for the name service"

# On a host without IPv6 the name's other address does.
inside w0 sh -c 'echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6'
start without named 0 $'fd77::101 agg\n10.77.0.101 agg' "$BUILD/winnow" bench --aggregators agg:5555 --job without --rank 0 --world 1 "${common[@]}"
expect without 60 0
inside w0 sh -c 'echo 0 >/proc/sys/net/ipv6/conf/all/disable_ipv6'
ip -n "$net-w0" addr add fd77::1/64 dev eth0 nodad

# Whoever looks at it.
for address in '[fd77::101]' 10.77.0.101; do
	inside w1 "$BUILD/winnow" status "$address:9555" | seen 'healthy' || fail "winnow status $address:9555 does not see it"
	inside w1 curl -sg "http://$address:9555/metrics" | seen winnow_jobs || fail "no metrics at $address"
done
inside w1 "$BUILD/winnow" doctor --aggregators '[fd77::101]:5555' >"$tmp/doctor.out"
grep -qE 'ok +mtu +\[fd77::101\]:5555: datagrams of 1452 bytes pass; our MTU is 1500' "$tmp/doctor.out" || fail "doctor: $(cat "$tmp/doctor.out")"
refuses 2 "'::1:5555' is not HOST:PORT: an IPv6 address stands in brackets" "$BUILD/winnowd" --listen ::1:5555
winnowd_stop

# The kernel adds what comes by either family, and sends to a group of that of the last PUSH.
ip netns exec "$net-sw" ip link set dev "$net-a0" xdp obj "$BUILD/tests/e2e/pass.bpf.o" sec xdp || fail "cannot attach a program"
for mode in native generic; do
	[ $mode = native ] || whole_frames a0
	for listen in '[fd77::101]' '[::]'; do
		serve "$listen" --datapath xdp --device eth0 --xdp-mode $mode
		works "xdp-$mode" "$of_all" --wire fixed32
		has "xdp-$mode" multicast 1
		added=$(inside w1 curl -sg 'http://[fd77::101]:9555/metrics' | sed -n 's/^winnow_xdp_packets_total{.*"added"} //p')
		[ "${added%.*}" -gt 2000 ] || fail "$mode at $listen: the kernel has added $added PUSHes"
		if [ "$listen" = '[::]' ]; then
			works "mixed-$mode" "w0=$four w1=$six w2=$six w3=$four" --wire fixed32
			works "four-$mode" "w0=$four w1=$four" --wire fixed32
			works "link-$mode" "w0=[$link%eth0]:5555 w1=$six" --wire fixed32
		fi
		! grep -q event=not_fast "$tmp/winnowd-a0.log" || fail "$mode: the kernel adds nothing"
		winnowd_stop
	done
done
echo "all right"
