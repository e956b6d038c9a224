#!/usr/bin/env bash
# winnow job: a job waits longer than its times while it is paused, loses nothing, and hands over; a worker is taken out, and hears why.
# no-sanitizers: Debian's python is not built with them
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
printf 'paused a-key-of-that-job\n* another-key\n' >"$tmp/keys"
metrics=$(free_port)
winnowd --key-file "$tmp/keys" --metrics "127.0.0.1:$metrics"
first=$HOST:$PORT
winnowd --key-file "$tmp/keys" --metrics no
both=$first,$HOST:$PORT
job() { "${worker_side[@]}" "$BUILD/winnow" job "$@" --aggregators "$both" --key-file "$tmp/keys"; }
listens() { # port: of who takes one connection, so that a look must not be one
	local i
	for ((i = 0; i < 100; i++)); do
		ss -Hltn "sport = :$1" | grep -q . && return
		sleep 0.05
	done
	fail "nobody listens at port $1"
}
wrong() { # status, what it says, arguments..
	local status=$1 text=$2 got
	shift 2
	"$@" >"$tmp/wrong.out" 2>"$tmp/wrong.err"
	got=$?
	[ "$got" = "$status" ] || fail "'$*' ended with status $got"
	grep -q -- "$text" "$tmp/wrong.err" || fail "'$*' does not say '$text'"
}
wrong 2 'say pause, resume or shrink' job stop paused
wrong 2 'say pause, resume or shrink' job pause
wrong 2 "is no job's name" job pause 'a b'
wrong 2 'shrink needs --rank' job shrink paused
wrong 2 '--rank is for shrink' job pause paused --rank 1
wrong 1 'does not run here' job pause paused
wrong 2 'no job key' "$BUILD/winnow" job pause paused
wrong 2 'contradicts a key' "$BUILD/winnow" job pause paused --insecure-no-key --key-file "$tmp/keys" --aggregators "$both"
wrong 1 "it wants the job's key" "$BUILD/winnow" job pause paused --insecure-no-key --aggregators "$both"
wrong 1 'is winnowd there' "$BUILD/winnow" job pause paused --key-file "$tmp/keys" --aggregators "127.0.0.1:$(free_port)"
wrong 1 "wrong key for job 'paused'" env WINNOW_KEY=not-that-key "$BUILD/winnow" job pause paused --aggregators "$first"
# Somebody who says a byte now and then, and never a line, has as long as one who says nothing.
slow=$(free_port)
python3 - "$slow" <<'END' &
import socket, sys, time
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    connection, _ = server.accept()
    for _ in range(30):
        connection.send(b" ")
        time.sleep(0.3)
END
pids+=($!)
listens "$slow"
wrong 1 'it has not answered' timeout 5 "$BUILD/winnow" job pause paused --timeout 1s --key-file "$tmp/keys" --aggregators "127.0.0.1:$slow"
# On the path to winnowd sits somebody who keeps the order, and says that it is done.
between=$(free_port)
python3 - "$between" <<'END' &
import json, socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    connection, _ = server.accept()
    with connection, connection.makefile("rw") as lines:
        said = {"type": "hello", "version": 2, "key": True, "software": "winnowd", "nonce": "5" * 64, "features": []}
        print(json.dumps(said), file=lines, flush=True)
        assert json.loads(lines.readline())["type"] == "order"
        print(json.dumps({"type": "done", "text": "job 'paused' of 2 workers: pause"}), file=lines, flush=True)
END
pids+=($!)
listens "$between"
wrong 1 'no right proof' "$BUILD/winnow" job pause paused --key-file "$tmp/keys" --aggregators "127.0.0.1:$between"
[ ! -s "$tmp/wrong.out" ] || fail "an order that was kept back is said to be done: $(cat "$tmp/wrong.out")"

steady paused "WINNOW_AGGREGATORS=$both" "WINNOW_KEY_FILE=$tmp/keys" WINNOW_TIMEOUT=1s WINNOW_SILENCE=1s
for _ in $(seq 100); do
	job pause paused >"$tmp/pause.out" 2>"$tmp/pause.err" && break
	sleep 0.05
done
grep -c "job 'paused' of 2 workers: pause" "$tmp/pause.out" | grep -qx 2 || fail "pause: $(cat "$tmp/pause.out" "$tmp/pause.err")"
"$BUILD/winnow" status "127.0.0.1:$metrics" --late 0.5s >"$tmp/status.out" || fail "a paused job is degraded: $(cat "$tmp/status.out")"
grep -q 'paused *paused' "$tmp/status.out" || fail "status does not say that it is paused: $(cat "$tmp/status.out")"
results() { "$BUILD/winnow" status "127.0.0.1:$metrics" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["aggregators"][0]["report"]["jobs"][0]["results"])'; }
sleep 0.3
before=$(results)
sleep 3 # three times what anybody waits
[ "$(results)" = "$before" ] || fail "a paused job continues"
[ ! -e "$tmp/paused0.status" ] || fail "a paused job has ended: $(cat "$tmp/paused0.err")"
job resume paused >/dev/null || fail "resume"
for _ in $(seq 200); do
	[ "$(results)" -lt $((before + 200)) ] || break # it works again
	sleep 0.05
done
steady_ends paused

# One is taken out.
cat >"$tmp/worker.py" <<'END'
import sys, numpy, winnow
comm = winnow.Comm(rank=int(sys.argv[1]), world=3)
comm.allreduce(numpy.ones(1000, numpy.float32))
print("runs", flush=True)
try:
    while True:
        comm.allreduce(numpy.ones(1000, numpy.float32))
except winnow.MembersChanged as error:
    print(error)
try:
    comm.reconfigure()
    print("continues with", comm.world)
    comm.allreduce(numpy.ones(1000, numpy.float32))
except winnow.WinnowError as error:
    print(error)
comm.close()
END
# shellcheck source=tests/e2e/python.sh
. tests/e2e/python.sh
need_modules numpy
for rank in 0 1 2; do
	start "member$rank" "${worker_side[@]}" env PYTHONPATH=client/python WINNOW_LIBRARY="$BUILD/libwinnow.so" WINNOW_JOB=shrinks WINNOW_AGGREGATORS="$both" \
		WINNOW_KEY_FILE="$tmp/keys" "$python" "$tmp/worker.py" $rank
done
for _ in $(seq 200); do
	[ "$(cat "$tmp"/member?.out | grep -c runs)" = 3 ] && job shrink shrinks --rank 1 --reason 'its host is needed' >"$tmp/shrink.out" 2>/dev/null && break
	sleep 0.05
done
grep -q "job 'shrinks' of 3 workers: expel" "$tmp/shrink.out" || fail "shrink: $(cat "$tmp/shrink.out")"
for rank in 0 1 2; do expect "member$rank" 30 0; done
grep -q 'rank 1 (.*) was taken out by an operator: its host is needed' "$tmp/member1.out" || fail "rank 1 does not hear why: $(cat "$tmp/member1.out")"
grep -q 'continues with' "$tmp/member1.out" && fail "rank 1 continues"
for rank in 0 2; do grep -q 'continues with 2' "$tmp/member$rank.out" || fail "rank $rank: $(cat "$tmp/member$rank.out")"; done
grep -q 'event=order .*job=shrinks order=expel' "$tmp"/winnowd-*.log || fail "the log does not say who was told what"

# A paused job hands over when one of its aggregators drains, and is then paused where it was.
export WORKERS=3 STOP=$tmp/stop
for rank in 0 1 2; do
	start "handed$rank" "${worker_side[@]}" env PYTHONPATH=client/python WINNOW_JOB=handed WINNOW_AGGREGATORS="$both" WINNOW_KEY_FILE="$tmp/keys" \
		"$python" tests/e2e/partition.py $rank
done
for _ in $(seq 200); do
	grep -q members "$tmp"/handed?.out && job pause handed >"$tmp/pause.out" 2>/dev/null && break
	sleep 0.05
done
grep -c "job 'handed' of 3 workers: pause" "$tmp/pause.out" | grep -qx 2 || fail "pause: $(cat "$tmp/pause.out")"
sleep 0.3
begun=$SECONDS
winnowd_stop
[ $((SECONDS - begun)) -lt 10 ] || fail "a paused job has held a winnowd that drains for $((SECONDS - begun)) s"
both=$first
sleep 0.3
"$BUILD/winnow" status "127.0.0.1:$metrics" | seen -E '^handed/next\..* paused +3/3 +0 ' || fail "the job is not paused where it went: $("$BUILD/winnow" status "127.0.0.1:$metrics")"
for rank in 0 1 2; do [ ! -e "$tmp/handed$rank.status" ] || fail "rank $rank has ended: $(cat "$tmp/handed$rank.out" "$tmp/handed$rank.err")"; done
job resume handed >/dev/null || fail "resume"
touch "$STOP"
for rank in 0 1 2; do expect "handed$rank" 10 0; done
