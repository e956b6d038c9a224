#!/usr/bin/env bash
# winnow status and doctor over a network: two aggregators with XDP in one table, drops by reason, a shut firewall, a
# smaller MTU on the way, no multicast.
# release: it waits long
# waits: for answers that do not come
. "$(dirname "$0")/lib.sh"
need_namespaces
WINNOWD_OPTIONS="--datapath xdp --device eth0"
hosts_up 2 2 1500
w=$BUILD/winnow
one=10.77.0.101 two=10.77.0.102
winnowd_inside 0 --insecure-no-key --metrics $one:9555
winnowd_inside 1 --insecure-no-key --metrics $two:9555
for rank in 0 1; do
	start r$rank inside w$rank "$w" bench --aggregators $one:5555,$two:5555 --insecure-no-key --job both --rank $rank --world 2 \
		--size 1M --dtype i32 --iters 1000000
done
for _ in $(seq 100); do
	inside w0 "$w" status $one:9555,$two:9555 >"$tmp/status.out" && [ "$(grep -cE '^  xdp native: .*added [0-9.]+' "$tmp/status.out")" = 2 ] && break
	sleep 0.1
done
[ "$(grep -cE '^  xdp native: .*added [0-9.]+' "$tmp/status.out")" = 2 ] || fail "no counters of the XDP program: $(cat "$tmp/status.out")"
[ "$(grep -cE '^10\S+ +both +running +2/2 .* xdp\+mcast' "$tmp/status.out")" = 2 ] || fail "not two rows of xdp: $(cat "$tmp/status.out")"

# What strangers send is counted by reason.
inside w0 python3 -c 'import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(7): s.sendto(b"x" * 64, ("'$one'", 5555))'
sleep 0.3
inside w0 "$w" status $one:9555 >"$tmp/status.out" || fail "status"
grep -qE '^  dropped: .*bad_magic 7' "$tmp/status.out" || fail "bad_magic is not shown: $(cat "$tmp/status.out")"
inside w0 "$w" status $one:9555 --json >"$tmp/status.json" || fail "status --json"
[ "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["aggregators"][0]["report"]["drops"]["bad_magic"])' "$tmp/status.json")" = 7 ] || fail "drops in JSON"

kill -KILL -- "-${pids[-1]}" "-${pids[-2]}" # the job

# doctor: the way there, with and without obstacles.
doctor() { # wanted exit status, pattern, arg..
	local want=$1 pattern=$2 got=0
	shift 2
	inside w0 "$w" doctor "$@" >"$tmp/doctor.out" 2>"$tmp/doctor.err" || got=$?
	[ "$got" = "$want" ] || fail "doctor $*: exit status $got, want $want: $(cat "$tmp/doctor.out" "$tmp/doctor.err")"
	grep -qE -- "$pattern" "$tmp/doctor.out" || fail "doctor $*: no /$pattern/ in: $(cat "$tmp/doctor.out")"
}
doctor 0 "^ok +aggregator +$one:5555: joined; 1 MB summed" --aggregators $one:5555 --insecure-no-key
grep -qE '^ok +mtu .* datagrams of 1472 bytes pass; our MTU is 1500' "$tmp/doctor.out" || fail "mtu: $(cat "$tmp/doctor.out")"
grep -qE '^ok +multicast ' "$tmp/doctor.out" || fail "multicast: $(cat "$tmp/doctor.out")"
grep -qE '^ok +device eth0 +MTU 1500' "$tmp/doctor.out" || fail "device: $(cat "$tmp/doctor.out")"
# Of 1,000 datagrams 30 are lost, if each goes by itself; seldom fewer than ten.
inside w0 ethtool -K eth0 tx-udp-segmentation off gso off >"$tmp/ethtool.out" 2>&1 || fail "cannot switch segmentation off: $(cat "$tmp/ethtool.out")"
lossy w0
for _ in 1 2 3 4 5; do
	inside w0 "$w" doctor --aggregators $one:5555 --insecure-no-key >"$tmp/doctor.out" || fail "lost packets are a failure: $(cat "$tmp/doctor.out")"
	! grep -qE "^warn +aggregator +$one:5555: joined; 1 MB summed, [1-9][0-9]+ of " "$tmp/doctor.out" || break
done
grep -q '> find where packets are lost: ethtool -S' "$tmp/doctor.out" || fail "lost packets are not said: $(cat "$tmp/doctor.out")"
lossy w0 off
inside w0 ip link set eth0 multicast off
doctor 0 '^warn +device eth0 +MTU 1500, no multicast'
inside w0 ip link set eth0 multicast on
ip netns exec "$net-a0" "$w" doctor >"$tmp/doctor.out" || fail "doctor beside winnowd"
grep -qE '^warn +xdp +eth0 has another XDP program, "winnow"' "$tmp/doctor.out" || fail "the program there is not named: $(cat "$tmp/doctor.out")"
doctor 1 '^FAIL +aggregator .*no answer' --aggregators 10.77.0.77:5555 --insecure-no-key
doctor 1 '^FAIL +aggregator .*no job key' --aggregators $one:5555
inside w0 iptables -A INPUT -d 239.0.0.0/8 -j DROP
doctor 0 '^warn +multicast .*no probe arrived' --aggregators $two:5555 --insecure-no-key
ip -n "$net-sw" link set "$net-a1" mtu 1300
doctor 0 '^warn +mtu .*only datagrams of 1[0-9]+ bytes pass, though our MTU of 1500' --aggregators $two:5555 --insecure-no-key
grep -qE 'tracepath 10.77.0.102;' "$tmp/doctor.out" || fail "no way to mend it: $(cat "$tmp/doctor.out")"
inside w0 iptables -A OUTPUT -p udp -j DROP
doctor 1 '> TCP passes; open the same port for UDP' --aggregators $one:5555 --insecure-no-key
inside w0 iptables -A OUTPUT -p tcp -j DROP
doctor 1 '> start winnowd there' --aggregators $one:5555 --insecure-no-key
doctor 1 '^FAIL +device nosuch' --device nosuch
# Without --metrics it is where status looks, if that is free; if not, winnowd says so and goes on; "no" is obeyed.
quiet_winnowd() { # port, arg..
	ip netns exec "$net-w1" "$BUILD/winnowd" --listen "127.0.0.1:$1" --insecure-no-key "${@:2}" 2>"$tmp/winnowd-$1.log" &
	pids+=($!)
	until_ready "$tmp/winnowd-$1.log"
}
quiet_winnowd 5601 --metrics no
inside w1 "$w" status >/dev/null && fail "--metrics no is not obeyed"
quiet_winnowd 5602
inside w1 "$w" status >"$tmp/status.out" || fail "winnowd does not serve /status by default: $(cat "$tmp/status.out")"
grep -q '^127.0.0.1:9555: healthy' "$tmp/status.out" || fail "not at the default address: $(cat "$tmp/status.out")"
quiet_winnowd 5603
grep -q 'level=warn event=no_metrics' "$tmp/winnowd-5603.log" || fail "a second winnowd does not say that it has no metrics"
! grep -q 'event=no_metrics' "$tmp/winnowd-5602.log" || fail "the first has no metrics"
for at in 5601:no 5602:127.0.0.1:9555 5603:no; do
	grep -q "event=ready .* metrics=${at#*:} " "$tmp/winnowd-${at%%:*}.log" || fail "winnowd on port ${at%%:*} does not say metrics=${at#*:}"
done
refuses 1 'cannot serve HTTP on 127.0.0.1:9555' inside w1 "$BUILD/winnowd" --listen 127.0.0.1:5604 --insecure-no-key --metrics 127.0.0.1:9555
ip -n "$net-w1" link set eth0 down
inside w1 "$w" doctor --device eth0 >"$tmp/doctor.out" && fail "a device that is down is no failure"
grep -qE '^FAIL +device eth0 .*down' "$tmp/doctor.out" || fail "down: $(cat "$tmp/doctor.out")"
inside w1 "$w" doctor >"$tmp/doctor.out" || fail "no network is a failure: $(cat "$tmp/doctor.out")"
grep -qE '^warn +devices +no network device other than loopback is up' "$tmp/doctor.out" || fail "no network: $(cat "$tmp/doctor.out")"
echo "two aggregators, and the way to them"
