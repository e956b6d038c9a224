#!/usr/bin/env bash
# winnow trace: workers of a running job found, recorded, left alone again; whom they obey; what it refuses.
# winnow trace asks all processes of its network namespace, so those of other tests, some of which stand still, are in another one.
if [ "$(id -u)" = 0 ] && [ "${1:-}" != apart ] && unshare --net true 2>/dev/null; then
	exec unshare --net bash "$0" apart
fi
[ "${1:-}" != apart ] || ip link set lo up
. "$(dirname "$0")/lib.sh"
w=$BUILD/winnow
job=trace-$$
unset WINNOW_TRACE WINNOW_TRACE_SOCKET

winnowd --insecure-no-key
worker() { # rank world [arg..]
	"$w" bench --aggregator "$HOST:$PORT" --job "$job" --rank "$1" --world "$2" --size 1M --density 0.05 \
		--block 64 --iters 200000 --insecure-no-key "${@:3}" >"$tmp/worker.$1.log" 2>&1 &
	pids+=($!)
}
worker 0 2
first=${pids[-1]}
worker 1 2
trace() { # status arg..: into trace.log, trace.err
	local want=$1 got=0
	shift
	timeout 30 "$w" trace "$@" >"$tmp/trace.log" 2>"$tmp/trace.err" || got=$?
	[ $got = "$want" ] || fail "winnow trace $*: exit status $got, not $want"
}
for _ in $(seq 100); do
	"$w" trace --job "$job" >"$tmp/trace.log" 2>/dev/null && [ "$(grep -c "^$job" "$tmp/trace.log")" = 2 ] && break
	sleep 0.1
done
[ "$(grep -cE "^$job +[01] +2 +[0-9]+ +-$" "$tmp/trace.log")" = 2 ] || fail "the workers are not shown"

for _ in $(seq 100); do
	grep -q event=job_started "$tmp/winnowd-$PORT.log" && break
	sleep 0.1
done
sleep 1 # until its workers have heard so

# From a folder that is not there, relative; it grows; what it holds is what the job sends.
cd "$tmp" || exit 1
BUILD=$OLDPWD/$BUILD
case $w in /*) ;; *) w=$OLDPWD/$w ;; esac
trace 0 start folder --job "$job" --block 8
[ "$(grep -c "^rank [01] of job $job writes $tmp/folder/$job\..*\.[01]\.trace$" trace.log)" = 2 ] || fail "start does not say where"
trace 1 start other --job "$job"
[ "$(grep -c 'it is being traced already$' trace.err)" = 2 ] || fail "started twice"
[ ! -e other ] || fail "a folder for nothing"
sleep 2
trace 0 --job "$job"
[ "$(grep -cE "^$job +[01] +2 +[0-9]+ +[1-9][0-9]*$" trace.log)" = 2 ] || fail "no operations are shown"
trace 0 stop --job "$job"
size=$(stat -c %s folder/*.0.trace)
"$w" tune folder --blocks 64 --json >tune.json || fail "tune of what was recorded"
/usr/bin/python3 - tune.json <<'END' || fail "what was recorded: $(cat tune.json)"
import json, sys
got = json.load(open(sys.argv[1]))
job, row = got["traced_job"], got["rows"][0]
assert got["world"] == 2 and job["operations"] > 20 and job["block"] == 64
# Totals since the trace began, not since the job did: but for what was under way at its ends.
ratio = job["sent_bytes"] / (row["sent"]["bytes"] * job["operations"])
assert 0.9 < ratio < 1.1 + 2 / job["operations"], ratio
END
trace 1 stop --job "$job"
[ "$(grep -c 'it is not being traced$' trace.err)" = 2 ] || fail "stopped twice"
[ "$(stat -c %s folder/*.0.trace)" = "$size" ] || fail "it still grows"
trace 1 start folder --job "$job"
[ "$(grep -c 'cannot make the trace .*: File exists$' trace.err)" = 2 ] || fail "over another trace"
trace 0 start again --pid "$first" --limit 2K
[ "$(grep -c "^$job" trace.log)$(find again -name '*.trace' | wc -l)" = 11 ] || fail "--pid"
for _ in $(seq 100); do
	grep -q 'WINNOW_TRACE_LIMIT is reached; the job goes on' worker.0.log && break
	sleep 0.1
done
trace 0 --pid "$first"
grep -qE "^$job +0 .* -$" trace.log || fail "a full trace is still shown"

# Whom they obey: not others.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	install -d -m 777 theirs
	cp "$w" "$(dirname "$w")"/libwinnow.so.* theirs/
	chmod 755 "$tmp" theirs/*
	got=0
	setpriv --reuid 65534 --regid 65534 --clear-groups theirs/winnow trace start theirs/t --job "$job" \
		>trace.log 2>trace.err || got=$?
	[ "$got$(grep -c "no such worker of yours is on this machine, and 2 of other users: ask as that user, or as root$" trace.err)" = 11 ] || fail "another user: status $got"
	[ ! -e theirs/t ] || fail "another user was obeyed"
	# Nor does the worker tell him anything: root asks after him, by a socket of his own, and has an answer when he has none.
	/usr/bin/python3 - "$first" <<'END' || fail "another user has an answer"
import os, socket, sys
name = next("\0" + line.split("@")[1].strip() for line in open("/proc/net/unix") if f"@winnow-trace.{sys.argv[1]}." in line)
def asker():
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.bind("")
    made.settimeout(20)
    made.connect(name)
    return made
theirs, ours = asker(), asker()
if os.fork() == 0:
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    theirs.send(b'{"order": "show"}')
    os._exit(0)
os.wait()
ours.send(b'{"order": "show"}')
assert b'"job"' in ours.recv(65536)
theirs.setblocking(False)
try:
    sys.exit(f"told a stranger: {theirs.recv(65536)}")
except BlockingIOError:
    pass
END
fi

# One that is stopped: the others answer, and who does not is said; also where many have asked it.
full_queue() {
	/usr/bin/python3 - "$first" <<'END'
import socket, sys
asker = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
asker.setblocking(False)
for line in open("/proc/net/unix"):
    if f"@winnow-trace.{sys.argv[1]}." in line:
        asker.connect("\0" + line.split("@")[1].strip())
try:
    while True:
        asker.send(b"?")
except BlockingIOError:
    pass
END
}
kill -STOP "$first"
for before in : full_queue; do
	$before || fail "its queue cannot be filled"
	trace 1 --timeout 500ms --job "$job"
	grep -q "process $first does not answer" trace.err || fail "a stopped worker, after $before"
	grep -qE "^$job +1 " trace.log || fail "the other one is not shown"
done
kill -CONT "$first"

refuses 2 'start needs a folder' "$w" trace start
refuses 2 'not begin$' "$w" trace begin
refuses 2 'only start takes a folder' "$w" trace stop x
refuses 2 'not UTF-8' "$w" trace start $'/\xff'
refuses 2 'block is 0: want 1' "$w" trace start x --block 0
refuses 1 'no worker of this job is on this machine: nobody' "$w" trace --job nobody
[ "$(id -u)" != 0 ] || refuses 1 'no worker of a running job' unshare -n "$w" trace
# Nobody is there who does not want to be; and nobody stays behind.
kill "${pids[@]:1}"
wait "${pids[@]:1}" 2>/dev/null
refuses 1 'no worker of this job' "$w" trace --job "$job"
export WINNOW_TRACE_SOCKET=no
worker 0 1
sleep 1.5
kill -0 "${pids[-1]}" || fail "no worker: $(cat "$tmp/worker.0.log")"
refuses 1 'no worker of this job' "$w" trace --job "$job"

echo "recorded as asked"
