#!/usr/bin/env bash
# The circuit breaker: on a network that is shared, heavy loss for ten seconds ends a job, in either direction, with a line that says
# who, how much and how long, on all workers; less loss does not, nor any on a network that is Winnow's alone.
# release: like ecn and dscp, it is about what networks do beside us
# aside: it measures seconds
. "$(dirname "$0")/lib.sh"
need_namespaces
[ -z "${WINNOWD_OPTIONS:-}" ] || { echo "the rules are the worker's, whatever the datapath" && exit 77; }
hosts_up 2 1 1500
winnowd_inside 0 --insecure-no-key --threads 1
loses() { # host share
	inside "$1" iptables -F INPUT
	[ "$2" = 0 ] || inside "$1" iptables -A INPUT -p udp -m statistic --mode random --probability "$2" -j DROP
}
begin() { # name option..
	job "$1" "$(everywhere 2 10.77.0.101:5555)" --insecure-no-key --size 256K --density 1 --iters 1000000 --multicast=0 "${@:2}"
}
ends() { # name pattern: on both workers, after ten seconds of it and not much more
	local began=$SECONDS
	job_ends "$1" 40 1 "$2"
	[ $((SECONDS - began)) -ge 9 ] || fail "$1: it ended after $((SECONDS - began)) s"
}

# Of what goes to the aggregator.
loses a0 0.35
begin out
ends out '[234][0-9] % of the datagrams of rank [01] to aggregator 10.77.0.101:5555 were lost for 1[0-9] s \([0-9]+ of [0-9]+\): .*WINNOW_NETWORK=private'
grep -q 'event=job_failed job=out .*were lost for' "$tmp/winnowd-a0.log" || fail "winnowd does not say why: $(tail -n 2 "$tmp/winnowd-a0.log")"

# Of what comes to one of the workers, and to nobody else: it is named.
loses a0 0
loses w1 0.35
begin in
ends in '[234][0-9] % of the datagrams of rank 1 from aggregator 10.77.0.101:5555 were lost'

# Neither of these ends in as long, and then somewhat.
begin private --network private
loses a0 0.35
sleep 14
kill_and_see() { # name: it still ran
	local rank
	for rank in 0 1; do
		[ ! -s "$tmp/$1$rank.err" ] || ! grep -q 'were lost' "$tmp/$1$rank.err" || fail "$1 has ended: $(cat "$tmp/$1$rank.err")"
		grep -q "event=job_failed job=$1" "$tmp/winnowd-a0.log" && fail "$1 has ended: $(tail -n 1 "$tmp/winnowd-a0.log")"
	done
	return 0
}
kill_and_see private
loses w1 0
loses a0 0.1
begin little
sleep 14
kill_and_see little
refuses 2 "network is 'mine': want shared or private" "$BUILD/winnow" bench --local 1 --network mine
