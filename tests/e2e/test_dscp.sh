#!/usr/bin/env bash
# The class of datagrams (DSCP) as a capture sees it: of winnowd and of workers, by name and by number, in both families, by unicast
# and by multicast, of the kernel's turned-round packets and of DPDK's; the marks' bits below it are as before.
# release: it is over all datapaths
. "$(dirname "$0")/lib.sh"
need_namespaces
[ -z "${WINNOWD_OPTIONS:-}" ] || { echo "chooses the datapaths itself" && exit 77; }
hosts_up 2 1 1500
hosts_six 2
works() { # aggregator option..: what has passed worker 0's interface meanwhile is in $tmp/classes
	local capture
	rm -f "$tmp/capture.err"
	inside w0 python3 tests/e2e/classes.py >"$tmp/classes" 2>"$tmp/capture.err" &
	capture=$!
	pids+=("$capture")
	until grep -qs ready "$tmp/capture.err"; do sleep 0.05; done
	bench_inside 2 "$1" 60 --insecure-no-key --size 4M --density 1 --iters 2 --warmup 1 "${@:2}"
	pkill -TERM -P "$capture" 2>/dev/null || kill "$capture"
	wait "$capture" 2>/dev/null || true
}
passed() { # family direction TOS: there are such, though a capture may see many as one, and none has another class or bits
	awk -v f="$1" -v d="$2" -v t="$3" '$1 == f && $2 == d { n += $4; if ($3 == t) m = $4 } END { exit !(m > 100 && m == n) }' "$tmp/classes" ||
		fail "IPv$1 $2: not all datagrams have $3: $(tr '\n' ';' <"$tmp/classes")"
}

# Sockets. 0x5a: AF23 and ECT(0); 0x22: CS1; without the option 0x02.
for family in 4 6; do
	at=10.77.0.101:5555
	[ $family = 4 ] || at="[fd77::101]:5555"
	winnowd_inside 0 --listen "$at" --insecure-no-key --threads 1 --dscp AF23
	for cast in 1 0; do
		works "$at" --dscp cs1 --multicast=$cast
		passed $family up 0x22
		passed $family down 0x5a
	done
	WINNOW_DSCP=63 works "$at"
	passed $family up 0xfe
	winnowd_stop
done
winnowd_inside 0 --insecure-no-key --threads 1
works 10.77.0.101:5555
passed 4 up 0x02
passed 4 down 0x02
winnowd_stop

# One socket for both families.
winnowd_inside 0 --listen "[::]:5555" --insecure-no-key --threads 1 --dscp cs1
works 10.77.0.101:5555
passed 4 up 0x02
passed 4 down 0x22
works "[fd77::101]:5555"
passed 6 up 0x02
passed 6 down 0x22
winnowd_stop

# The kernel's own answers.
ip netns exec "$net-sw" ip link set dev "$net-a0" xdp obj "$BUILD/tests/e2e/pass.bpf.o" sec xdp || fail "cannot attach a program"
for family in 4 6; do
	at=10.77.0.101:5555
	[ $family = 4 ] || at="[fd77::101]:5555"
	winnowd_inside 0 --listen "$at" --insecure-no-key --threads 1 --datapath xdp --device eth0 --dscp 10 --metrics 127.0.0.1:9555
	works "$at" --dscp ef --dtype i32
	passed $family up 0xba
	passed $family down 0x2a
	added=$(inside a0 bash -c "$(declare -f metric); metric \"\$@\"" metric 127.0.0.1:9555 'winnow_xdp_packets_total{verdict="added"}')
	[ "${added%.*}" -gt 1000 ] || fail "IPv$family: the kernel has added only $added"
	winnowd_stop
done
ip netns exec "$net-sw" ip link set dev "$net-a0" xdp off

# DPDK's ports.
if has_dpdk; then
	winnowd_inside 0 --insecure-no-key --threads 1 --datapath dpdk --device eth0 --dscp va
	works 10.77.0.101:5555 --dscp le
	passed 4 up 0x06
	passed 4 down 0xb2
	winnowd_stop
fi

for wrong in 64 -1 cs8 af40 af5 'ef ' 0x10 expedited ''; do
	refuses 2 "dscp is '$wrong': want a number, or a name such as|dscp is $wrong: want 0 to 63" "$BUILD/winnowd" --insecure-no-key --dscp "$wrong"
	refuses 2 "dscp is '$wrong': want a number, or a name such as|dscp is $wrong: want 0 to 63" "$BUILD/winnow" bench --local 1 --dscp "$wrong"
done
