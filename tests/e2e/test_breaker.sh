#!/usr/bin/env bash
# The circuit breaker on real sockets: heavy loss for ten seconds ends a job on a network that is shared, with a line on all workers
# and winnowd that says who, how much and how long; a job on a network of its own goes on beside it.
# release: it measures seconds; the simulation has both directions, and less loss
# aside: the same
. "$(dirname "$0")/lib.sh"
need_namespaces
[ -z "${WINNOWD_OPTIONS:-}" ] || { echo "the rules are the worker's, whatever the datapath" && exit 77; }
hosts_up 2 1 1500
winnowd_inside 0 --insecure-no-key --threads 1
inside a0 iptables -A INPUT -p udp -m statistic --mode random --probability 0.35 -j DROP
began=$SECONDS
for network in private shared; do
	job $network "$(everywhere 2 10.77.0.101:5555)" --insecure-no-key --size 256K --density 1 --iters 1000000 --multicast=0 --network $network
done
job_ends shared 40 1 '[234][0-9] % of the datagrams of rank [01] to aggregator 10.77.0.101:5555 were lost for 1[0-9] s \([0-9]+ of [0-9]+\), .*WINNOW_NETWORK=private'
[ $((SECONDS - began)) -ge 9 ] || fail "it ended after $((SECONDS - began)) s"
grep -q 'event=job_failed job=shared .*were lost for' "$tmp/winnowd-a0.log" || fail "winnowd does not say why: $(tail -n 2 "$tmp/winnowd-a0.log")"
sleep 3 # it began at the same time, and is judged each second
for rank in 0 1; do [ ! -e "$tmp/private$rank.status" ] || fail "the private job has ended: $(cat "$tmp/private$rank.err")"; done
