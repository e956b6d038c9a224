#!/usr/bin/env bash
# The XDP fast path on real packets, native and generic: right results whatever the sizes, workers, losses and jobs beside
# it; a killed daemon leaves nothing on the device.
# release: another data path, in all its modes
. "$(dirname "$0")/lib.sh"
. tests/e2e/python.sh
need_modules numpy
need_namespaces
WINNOWD_OPTIONS="--datapath xdp --device eth0"
hosts_up 4 1 1500
one=10.77.0.101:5555
metrics=127.0.0.1:9555
common=(--insecure-no-key --iters 2 --warmup 1 --json)
daemon() { # mode, arg..
	local mode=$1
	shift
	winnowd_inside 0 --insecure-no-key --xdp-mode "$mode" --metrics $metrics "$@"
}
counter() { inside a0 bash -c "$(declare -f metric); metric \"\$@\"" metric $metrics "$1"; }
added() { counter 'winnow_xdp_packets_total{verdict="added"}'; }
results() { counter 'winnow_packets_sent_total'; }
loss() { # share
	local host
	for host in w0 w1 w2 w3 a0; do
		inside $host iptables -F INPUT
		[ "$1" = 0 ] || inside $host iptables -A INPUT -p udp -m statistic --mode random --probability "$1" -j DROP
	done
}
ranks() { # world, arg..: that many workers, four hosts
	local rank places=""
	for ((rank = 0; rank < $1; rank++)); do places+="w$((rank % 4))=$one "; done
	job r "$places" "${@:2}"
	job_ends r 120
}

for mode in native generic; do
	daemon $mode
	grep -q "xdp=\"$mode\"" "$tmp/winnowd-a0.log" || fail "winnowd does not say that it is $mode"
	# Datagrams one by one, as a NIC delivers them: generic mode sees super-packets whole otherwise.
	for host in w0 w1 w2 w3; do inside $host ethtool -K eth0 tx-udp-segmentation off gro on >/dev/null; done
	before=$(added)
	bench_inside 4 $one 60 "${common[@]}" --size 0,4,4K,64K,3M --density 1,0.1,0
	[ "$(json "$tmp/w0.out" wire)" = fixed32 ] || fail "auto did not choose fixed32"
	# Of 3 MB at density 1 alone, four workers push 36,864.
	[ "$(added)" -gt $((before + 30000)) ] || fail "$mode: the kernel has added $(($(added) - before)) PUSHes only"
	bench_inside 4 $one 60 "${common[@]}" --size 1K --density 1
	[ "$(json "$tmp/w0.out" wire)" = f32 ] || fail "auto makes two round trips of one"
	bench_inside 4 $one 60 "${common[@]}" --size 1K --density 1 --wire fixed32
	[ "$(json "$tmp/w0.out" wire)" = fixed32 ] || fail "fixed32 was not obeyed"
	sent=$(results) before=$(added)
	bench_inside 4 $one 60 "${common[@]}" --size 3M --dtype i32 --density 0.5 --overlap all
	# 4,608 frames, each with a PUSH of all four workers: the kernel adds all of them, and sends nearly all RESULTs. User space
	# sends plans and answers, and what is asked for again: 58 to 891 datagrams were seen, the most on a busy machine.
	[ $(($(added) - before)) -gt 18000 ] || fail "$mode: of 18,432 PUSHes the kernel has added $(($(added) - before))"
	[ $(($(results) - sent)) -lt 2300 ] || fail "$mode: user space has sent $(($(results) - sent)) packets"
	# The kernel also adds frames of a reduce-scatter. Of two tensors of 3.2 MB, one of them sparse, a worker receives its shares: an allreduce would be 5.6 MB.
	before=$(added)
	if [[ ${SAN:-} != *thread* ]]; then # whose library no Python can load
		for rank in 0 1 2 3; do
			start s$rank inside w$rank env PYTHONPATH=client/python WINNOW_AGGREGATORS=$one WINNOW_INSECURE_NO_KEY=1 "$PYTHON" tests/e2e/scatter.py $rank 4 2
		done
		for rank in 0 1 2 3; do
			expect s$rank 60 0
			[ "$(tail -n 1 "$tmp/s$rank.out")" -lt 4000000 ] || fail "$mode: rank $rank has received $(tail -n 1 "$tmp/s$rank.out") bytes"
		done
		[ $(($(added) - before)) -gt 8000 ] || fail "$mode: of a reduce-scatter the kernel has added $(($(added) - before)) PUSHes"
	fi
	bench_inside 4 $one 60 "${common[@]}" --size 3M --dtype i32 --op avg
	bench_inside 4 $one 60 "${common[@]}" --size 3M --wire f32 --density 0.3
	bench_inside 4 $one 60 "${common[@]}" --size 3M --block 32 --density 0.2 --in-place
	bench_inside 4 $one 60 "${common[@]}" --size 3M --block 4096 --op avg
	bench_inside 4 $one 60 "${common[@]}" --size 3M --multicast=0
	# A worker on the aggregator's own host does not hear what the program sends by the device: the sockets send results.
	job local "w0=$one a0=$one" --insecure-no-key --size 3M --dtype i32 --density 1 --iters 1000000
	enough() {
		frames=$(counter 'winnow_results_total{job="local"}') again=$(counter 'winnow_retransmits_total{job="local",reason="result"}')
		[ "${frames:-0}" -gt 20000 ]
	}
	soon 30 enough || fail "$mode: the job with a local worker does not run"
	[ "$again" -lt $((frames * 2 / 5)) ] || fail "$mode: of $frames results $again were sent again: a local worker does not hear them"
	kill -KILL -- "-${leader[local0]}" "-${leader[local1]}"
	# A sanitizer's 64 processes take minutes to start.
	for world in 1 16 $([ -n "${SAN:-}" ] || echo 64); do ranks "$world" "${common[@]}" --size 4K,500K --density 0.3; done
	if [ -z "${SAN:-}" ]; then
		ranks 65 "${common[@]}" --size 200K --iters 1
		[ "$(json "$tmp/r0.out" wire)" = f32 ] || fail "65 workers are more than the kernel takes"
	fi

	# Jobs of both kinds side by side, with loss.
	loss 0.03
	for job in fixed32 f32; do
		job $job "$(everywhere 4 $one)" "${common[@]}" --size 4K,3M --density 1,0.05 --wire $job
	done
	for job in fixed32 f32; do job_ends $job 120; done
	loss 0
	winnowd_stop
	ip -n "$net-a0" link show eth0 | seen xdp && fail "a program is left on the device"

	# Killed in the middle: workers are told, nothing is left, and the next one works.
	daemon $mode
	job k "$(everywhere 4 $one)" --insecure-no-key --size 3M --iters 1000000
	works() { [ "$(added)" -gt 10000 ]; }
	soon 30 works || fail "$mode: the job to be killed does not run"
	kill -KILL "$DAEMON"
	job_ends k 10 1 'aggregator 10.77.0.101:5555 is lost'
	ip -n "$net-a0" link show eth0 | seen xdp && fail "a program is left on the device"
	daemon $mode
	bench_inside 4 $one 60 "${common[@]}" --size 1M
	winnowd_stop

	# With a key: the program checks the seals of what it adds, and seals what it sends.
	echo correct-horse-battery >"$tmp/key"
	winnowd_inside 0 --key-file "$tmp/key" --xdp-mode "$mode" --metrics $metrics
	bench_inside 4 $one 60 --key-file "$tmp/key" --iters 2 --warmup 1 --json --size 4K,3M --density 1,0.1 --wire fixed32
	# Of 3 MB at density 1 alone, four workers push 36,864.
	[ "$(added)" -gt 30000 ] || fail "$mode: of sealed PUSHes the kernel has added $(added) only"
	loss 0.03
	bench_inside 4 $one 60 --key-file "$tmp/key" --iters 2 --warmup 1 --json --size 3M --dtype i32 --density 0.5
	loss 0
	[ "$(counter 'winnow_packets_dropped_total{reason="bad_seal"}')" = 0 ] || fail "$mode: right seals were taken for wrong"
	winnowd_stop
done

# Larger datagrams: native mode takes MTU 3498, generic mode more, but the program's slots end at 3,488 bytes.
hosts_mtu 3498 w0 w1 w2 w3 a0
daemon native
bench_inside 4 $one 60 "${common[@]}" --size 4M --block 768 --density 1,0.1
[ "$(json "$tmp/w0.out" payload)" = 3470 ] || fail "payload is not what MTU 3498 carries"
[ "$(added)" -gt 15000 ] || fail "MTU 3498: of 16,384 PUSHes at density 1, and more, the kernel has added $(added)"
bench_inside 4 $one 60 "${common[@]}" --size 4M --block 100 --density 0.3
winnowd_stop
ip -n "$net-sw" link set dev "$net-a0" xdp off
hosts_mtu 9000 w0 w1 w2 w3 a0
daemon auto
grep -q 'xdp="generic: eth0 refuses XDP in native mode .*MTU of 9000' "$tmp/winnowd-a0.log" || fail "auto does not say why it is not native"
bench_inside 4 $one 60 "${common[@]}" --size 4M
grep -q 'event=not_fast .*more than 3488 bytes' "$tmp/winnowd-a0.log" || fail "no reason for a slow job"
winnowd_stop
# A job that turns out to be too large for the program gives its slots back at once.
daemon auto --xdp-slots 1024
job large "$(everywhere 2 $one)" --insecure-no-key --size 4M --iters 1000000
await 'event=job_started job=large .*fast=no' "$tmp/winnowd-a0.log"
WINNOW_PAYLOAD=1472 bench_inside 4 $one 60 "${common[@]}" --size 4M
grep -q 'window=1024 .*fast=yes' "$tmp/winnowd-a0.log" || fail "a job that has no use for its slots keeps them"
[ ! -e "$tmp/large0.status" ] || fail "the large job has ended"
kill -KILL "$DAEMON"
job_ends large 20 1 'is lost'
daemon auto --payload-max 3470
bench_inside 4 $one 60 "${common[@]}" --size 4M
grep -q 'fast=yes' "$tmp/winnowd-a0.log" || fail "--payload-max does not help"
winnowd_stop
hosts_mtu 1500 w0 w1 w2 w3 a0
daemon auto --xdp-slots 1500
job a "$(everywhere 2 $one)" --insecure-no-key --size 4M --iters 1000000 # which is there until winnowd ends
await 'event=job_started job=a .*fast=yes' "$tmp/winnowd-a0.log"
bench_inside 4 $one 60 "${common[@]}" --size 1M
grep -q 'event=not_fast .*other jobs have the slots' "$tmp/winnowd-a0.log" || fail "no reason for a job without slots"
kill -KILL "$DAEMON"
job_ends a 20 1 'is lost'

# What cannot be had is said in one line.
refuses 2 'needs --device' "$BUILD/winnowd" --insecure-no-key --datapath xdp
refuses 1 'no network device is called "nosuch"' "$BUILD/winnowd" --insecure-no-key --listen "127.0.0.1:$(free_port)" --datapath xdp --device nosuch
ip netns exec "$net-a0" ip link set dev eth0 xdpgeneric obj "$BUILD/tests/e2e/pass.bpf.o" sec xdp
refuses 1 'eth0 has another XDP program' inside a0 "$BUILD/winnowd" --insecure-no-key --datapath xdp --device eth0
WINNOWD_OPTIONS="--datapath auto --device eth0"
winnowd_inside 0 --insecure-no-key
grep -q 'event=no_xdp .*another XDP program' "$tmp/winnowd-a0.log" || fail "auto does not say why there is no xdp"
bench_inside 4 $one 60 "${common[@]}" --size 1M
echo "all right"
