#!/usr/bin/env bash
# A link that goes down and comes up again: the job survives. An interface that disappears: winnowd and a worker say so in one
# line and end. winnowd killed and started again. A worker whose MAC address changes between jobs.
# release: another data path
# waits: for links, neighbours and silence
. "$(dirname "$0")/lib.sh"
need_dpdk
hosts_up 2 1 1500
serve() {
	winnowd_inside 0 --insecure-no-key --datapath dpdk --device eth0
	LOG=$tmp/winnowd-a0.log
}
own() { [ "$1" != 0 ] || echo "--datapath dpdk --device eth0"; }
runs() { # name iters option..: rank 0 with dpdk, rank 1 with sockets
	job "$1" "$(everywhere 2 10.77.0.101:5555)" --insecure-no-key --size 1M --density 0.3 --iters "$2" "${@:3}"
	await "event=job_started job=$1 " "$LOG"
}

serve
runs flaps 300
for ((i = 0; i < 3; i++)); do
	sleep 0.3
	ip -n "$net-sw" link set "$net-a0" down
	sleep 0.4
	ip -n "$net-sw" link set "$net-a0" up
done
job_ends flaps 60
[ "$(grep -c 'level=warn.*port net_af_packet0: the link is down' "$LOG")" -ge 1 ] || fail "the log does not say that the link was down"
[ "$(grep -c 'level=info.*port net_af_packet0: the link is up' "$LOG")" -ge 1 ] || fail "the log does not say that the link came up"

# The interface itself, down and up.
runs itself 300
sleep 0.3
inside a0 ip link set eth0 down
sleep 0.6
inside a0 ip link set eth0 up
job_ends itself 60

# Another network card in a worker: same address.
inside w1 ip link set eth0 address 02:77:00:00:00:99
runs card 3
job_ends card 60

# winnowd dies, another takes its place at once.
runs dies 100000
sleep 0.5
kill -KILL "$DAEMON"
job_ends dies 10 1 'aggregator 10.77.0.101:5555 is lost: (connection closed|Connection reset)'
serve
runs again 3
job_ends again 30

# The port of the aggregator goes for good.
runs left 100000 --silence 3s
sleep 0.5
ip -n "$net-a0" link del eth0
soon 5 gone "$DAEMON" || fail "winnowd goes on without its interface"
wait "$DAEMON"
status=$?
[ $status = 1 ] || fail "winnowd without its interface ended with status $status"
daemon_status=1 # so lib.sh is content with it
[ "$(grep -c 'level=error' "$LOG")" = 1 ] || fail "not one line of error: $(grep level=error "$LOG")"
grep -qE 'level=error.*port net_af_packet0 has been removed' "$LOG" || fail "the error does not say what has happened: $(grep level=error "$LOG")"
job_ends left 15 1 'aggregator 10.77.0.101:5555 is lost: '
echo "all right"
