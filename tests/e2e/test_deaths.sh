#!/usr/bin/env bash
# Workers and aggregators that die, freeze or stay away: every other worker gets an error that names who, in time.
. "$(dirname "$0")/lib.sh"
winnowd --insecure-no-key
endless=(--insecure-no-key --size 4M --iters 1000000 --silence 2s)

victims() { # job extra..: three workers; VICTIM is the pid of rank 1
	local rank job=$1
	shift
	for rank in 0 1 2; do
		"${worker_side[@]}" "$BUILD/winnow" bench --aggregators "$HOST:$PORT" --job "$job" --rank $rank --world 3 "${endless[@]}" "$@" \
			>/dev/null 2>"$tmp/$job$rank.err" &
		pids+=($!)
		eval "W$rank=$!"
	done
	VICTIM=$W1
	await "event=job_started job=$job " "$tmp/winnowd-$PORT.log"
	sleep 0.3
	kill -0 "$VICTIM" || fail "job $job does not run"
}

ends() { # job rank pid seconds pattern
	local i
	for i in $(seq $(($4 * 20))); do
		if ! kill -0 "$3" 2>/dev/null; then
			wait "$3" && fail "job $1 rank $2 ended with status 0"
			grep -qE "$5" "$tmp/$1$2.err" || fail "job $1 rank $2 says: $(cat "$tmp/$1$2.err")"
			[ "$(wc -l <"$tmp/$1$2.err")" = 1 ] || fail "job $1 rank $2: more than one line"
			return
		fi
		sleep 0.05
	done
	fail "job $1 rank $2 still hangs after $4 s"
}

victims crash
kill -KILL "$VICTIM"
ends crash 0 "$W0" 3 'rank 1 \(.*\) is lost: connection'
ends crash 2 "$W2" 3 'rank 1 \(.*\) is lost: connection'

victims freeze
kill -STOP "$VICTIM"
# Meanwhile, a worker that is alive and does not call what the others do, and one that has left before.
for rank in 0 1; do caller stay $rank 2 WINNOW_TIMEOUT_MS=2000; done
for rank in 0 1; do calls stay $rank 1000; done
for rank in 0 1; do called stay $rank 1; done
calls stay 0 1000
start s0 bench --insecure-no-key --job less --rank 0 --world 2 --size 1M --iters 3 --warmup 0 --timeout 2s
start s1 bench --insecure-no-key --job less --rank 1 --world 2 --size 1M --iters 2 --warmup 0 --timeout 2s
ends freeze 0 "$W0" 6 'rank 1 \(.*\) is lost: silent for 2.0 s'
ends freeze 2 "$W2" 6 'rank 1 \(.*\) is lost: silent for 2.0 s'
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
	eval "pid=\$W$rank"
	ends daemon $rank "$pid" 3 "aggregator $HOST:$PORT is lost: (connection closed|Connection reset)"
done
winnowd_on "$PORT" --insecure-no-key
bench --insecure-no-key --job daemon --size 1M --iters 2 --check >/dev/null || fail "no work after a restart"

# It freezes: silence is noticed on the workers' side.
victims stopped
kill -STOP "$DAEMON"
ends stopped 0 "$W0" 6 "aggregator $HOST:$PORT is lost: silent for 2.0 s"
ends stopped 1 "$W1" 6 "silent for 2.0 s"
ends stopped 2 "$W2" 6 "silent for 2.0 s"
kill -CONT "$DAEMON"
sleep 0.3
bench --insecure-no-key --job after --size 1M --iters 2 --check >/dev/null || fail "no work after a freeze"
echo "all named in time"
