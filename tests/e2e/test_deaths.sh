#!/usr/bin/env bash
# Workers and aggregators that die, freeze or stay away: every other worker gets an error that names who, in time.
. "$(dirname "$0")/lib.sh"
winnowd --insecure-no-key
endless=(--insecure-no-key --size 4M --iters 1000000 --silence 2s)

victims() { # job: three workers; VICTIM is the pid of rank 1
	local rank
	for rank in 0 1 2; do start "$1$rank" bench --job "$1" --rank $rank --world 3 "${endless[@]}"; done
	await "event=job_started job=$1 " "$tmp/winnowd-$PORT.log"
	sleep 0.3
	VICTIM=$(pid_of "${1}1") || fail "job $1 does not run"
}

victims crash
kill -KILL "$VICTIM"
expect crash0 3 1 'rank 1 \(.*\) is lost: connection'
expect crash2 3 1 'rank 1 \(.*\) is lost: connection'

victims freeze
kill -STOP "$VICTIM"
# Meanwhile, a worker that is alive and does not call what the others do, and one that has left before.
for rank in 0 1; do caller stay $rank 2 WINNOW_TIMEOUT_MS=2000; done
for rank in 0 1; do calls stay $rank 1000; done
for rank in 0 1; do called stay $rank 1; done
calls stay 0 1000
start s0 bench --insecure-no-key --job less --rank 0 --world 2 --size 1M --iters 3 --warmup 0 --timeout 2s
start s1 bench --insecure-no-key --job less --rank 1 --world 2 --size 1M --iters 2 --warmup 0 --timeout 2s
expect freeze0 6 1 'rank 1 \(.*\) is lost: silent for 2.0 s'
expect freeze2 6 1 'rank 1 \(.*\) is lost: silent for 2.0 s'
kill -KILL "$VICTIM"
expect stay0 20 1 'rank 1 \(.*\) has not called operation #2 for 2\.[0-9] s: it is alive, in no operation$'
calls stay 1 1000
expect stay1 20 1 'rank 1 \(.*\) has not called operation #2 for 2\.[0-9] s: it is alive, in no operation$'
# At once, if it has left before rank 0 calls the third.
expect s0 20 1 'rank 1 (has not called operation #[0-9]+ for 2\.[0-9] s: it|\(.*\)) has left the job$'
expect s1 20 0

# The aggregator dies, and another takes its port.
victims daemon
kill -KILL "$DAEMON"
for rank in 0 1 2; do
	expect daemon$rank 3 1 "aggregator $HOST:$PORT is lost: (connection closed|Connection reset)"
done
winnowd_on "$PORT" --insecure-no-key
bench --insecure-no-key --job daemon --size 1M --iters 2 --check >/dev/null || fail "no work after a restart"

# It freezes: silence is noticed on the workers' side.
victims stopped
kill -STOP "$DAEMON"
expect stopped0 6 1 "aggregator $HOST:$PORT is lost: silent for 2.0 s"
expect stopped1 6 1 "silent for 2.0 s"
expect stopped2 6 1 "silent for 2.0 s"
kill -CONT "$DAEMON"
sleep 0.3
bench --insecure-no-key --job after --size 1M --iters 2 --check >/dev/null || fail "no work after a freeze"
echo "all named in time"
