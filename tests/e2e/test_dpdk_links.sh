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
job() { # name iters option..: rank 0 with dpdk, rank 1 with sockets
	local rank name=$1 iters=$2 road=(--datapath dpdk --device eth0)
	shift 2
	for rank in 0 1; do
		rm -f "$tmp/$name$rank.status"
		start "$name$rank" inside w$rank "$BUILD/winnow" bench --aggregators 10.77.0.101:5555 --insecure-no-key --job "$name" --rank $rank --world 2 \
			--check --size 1M --density 0.3 --iters "$iters" "${road[@]}" "$@"
		road=()
	done
}
ended() { # pid seconds: its exit status in STATUS
	local i
	for ((i = 0; i < $2 * 20; i++)); do
		kill -0 "$1" 2>/dev/null || {
			wait "$1"
			STATUS=$?
			return
		}
		sleep 0.05
	done
	fail "process $1 still runs after $2 s"
}

serve
job flaps 300
await event=job_started "$LOG"
for ((i = 0; i < 3; i++)); do
	sleep 0.3
	ip -n "$net-sw" link set "$net-a0" down
	sleep 0.4
	ip -n "$net-sw" link set "$net-a0" up
done
expect flaps0 60 0
expect flaps1 60 0
[ "$(grep -c 'level=warn.*port net_af_packet0: the link is down' "$LOG")" -ge 1 ] || fail "the log does not say that the link was down"
[ "$(grep -c 'level=info.*port net_af_packet0: the link is up' "$LOG")" -ge 1 ] || fail "the log does not say that the link came up"

# The interface itself, down and up.
job itself 300
await 'job_started job=itself' "$LOG"
sleep 0.3
inside a0 ip link set eth0 down
sleep 0.6
inside a0 ip link set eth0 up
expect itself0 60 0
expect itself1 60 0

# Another network card in a worker: same address.
inside w1 ip link set eth0 address 02:77:00:00:00:99
job card 3
expect card0 60 0
expect card1 60 0

# winnowd dies, another takes its place at once.
job dies 100000
await 'job_started job=dies' "$LOG"
sleep 0.5
kill -KILL "$DAEMON"
for rank in 0 1; do expect dies$rank 10 1 'aggregator 10.77.0.101:5555 is lost: (connection closed|Connection reset)'; done
serve
job again 3
expect again0 30 0
expect again1 30 0

# The port of the aggregator goes for good.
job gone 100000 --silence 3s
await 'job_started job=gone' "$LOG"
sleep 0.5
ip -n "$net-a0" link del eth0
ended "$DAEMON" 5
[ "$STATUS" = 1 ] || fail "winnowd without its interface ended with status $STATUS"
daemon_status=1 # so lib.sh is content with it
[ "$(grep -c 'level=error' "$LOG")" = 1 ] || fail "not one line of error: $(grep level=error "$LOG")"
grep -qE 'level=error.*port net_af_packet0 has been removed' "$LOG" || fail "the error does not say what has happened: $(grep level=error "$LOG")"
for rank in 0 1; do expect gone$rank 15 1 'aggregator 10.77.0.101:5555 is lost: '; done
echo "all right"
