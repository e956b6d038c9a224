#!/usr/bin/env bash
# winnowd's log: JSON that says what logfmt says, and of a flood of one event a hundred lines and their number. A pipe that nobody
# reads keeps nobody: jobs go on, HTTP answers, the end comes; and what was logged meanwhile comes out if somebody reads after all.
. "$(dirname "$0")/lib.sh"
flood() { # connections that send what is no join
	python3 -c 'import socket, sys
for _ in range(int(sys.argv[2])):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as peer:
        peer.sendall(b"nonsense\n")
        while peer.recv(4096): pass' "$PORT" "$1"
}
for format in logfmt json; do
	winnowd --insecure-no-key --log-format $format --metrics no
	bench --insecure-no-key --job 'with"quote' --size 4K --iters 1 >/dev/null 2>&1
	bench --insecure-no-key --job named --size 4K --iters 1 >/dev/null || fail "bench"
	flood 300
	winnowd_stop
	cp "$tmp/winnowd-$PORT.log" "$tmp/$format"
	[ "$(grep -c 'refused' "$tmp/$format")" = 101 ] || fail "$format: want 100 lines of refused and one that counts the rest, got $(grep -c refused "$tmp/$format")"
done
grep -qE '^time=[^ ]+ level=warn event=left_out of=refused code=protocol lines=200 seconds=[0-9]+$' "$tmp/logfmt" || fail "what was left out is not said: $(tail -n 3 "$tmp/logfmt")"
python3 - "$tmp/json" "$tmp/logfmt" <<'P' || fail "the two formats differ"
import json, re, shlex, sys
def normal(pairs):
    return {k: v for k, v in pairs if k not in ("time", "listen", "peer", "seconds")}
objects = [normal(json.loads(line, object_pairs_hook=list)) for line in open(sys.argv[1])]
lines = [normal(p.split("=", 1) for p in shlex.split(line)) for line in open(sys.argv[2])]
assert len(objects) == len(lines) > 100, (len(objects), len(lines))
for one, other in zip(objects, lines):
    assert {k: str(v) for k, v in one.items()} == other, (one, other)
ready = next(o for o in objects if o["event"] == "ready")
assert isinstance(ready["threads"], int) and ready["isa"] and ready["xdp"] == "no", ready
P
# Errors and other events are not held back by a flood of one.
refuses 2 "log-format is 'xml': want logfmt or json" "$BUILD/winnowd" --insecure-no-key --log-format xml

# ---- nobody reads stderr ----
full_pipe() { # winnowd's stderr is a pipe that is full at once; file 7 is its other end
	mkfifo "$tmp/pipe"
	exec 7<>"$tmp/pipe"
	rm "$tmp/pipe"
	python3 -c 'import fcntl; fcntl.fcntl(7, fcntl.F_SETPIPE_SZ, 4096)'
	PORT=$(free_port) metrics=$(free_port)
	"$BUILD/winnowd" --listen "127.0.0.1:$PORT" --insecure-no-key --metrics "127.0.0.1:$metrics" 2>&7 &
	DAEMON=$!
	pids+=("$DAEMON")
	wait_port 127.0.0.1 "$PORT" || fail "winnowd does not listen"
	steady deaf WINNOW_INSECURE_NO_KEY=1
	timeout 30 bash -c "$(declare -f flood); PORT=$PORT; flood 150" || fail "the control thread stands still behind a full pipe"
	has_worked() { "$BUILD/winnow" status "127.0.0.1:$metrics" --json | seen -E '"operations": [1-9][0-9]'; }
	soon 20 has_worked || fail "winnow status: $("$BUILD/winnow" status "127.0.0.1:$metrics" 2>&1)"
	steady_ends deaf
}
ends_within() { # seconds
	kill -TERM "$DAEMON"
	soon "$1" gone "$DAEMON" || fail "winnowd does not end behind a full pipe"
	wait "$DAEMON" || fail "exit status $?"
}
full_pipe
ends_within 5
exec 7<&-
full_pipe
cat <&7 >"$tmp/late" &
reader=$!
pids+=("$reader")
ends_within 5
await event=stopped "$tmp/late"
kill "$reader"
exec 7<&-
for event in ready job_started job_finished refused stopped; do grep -q "event=$event" "$tmp/late" || fail "event=$event is lost"; done
[ "$(grep -c event=refused "$tmp/late")" = 100 ] || fail "refusals are lost"

# Granted is what was asked for, not the double that the kernel says. Root may have more than the limits.
if [ -r /proc/sys/net/core/rmem_max ]; then # not in every namespace
	most=$(cat /proc/sys/net/core/rmem_max /proc/sys/net/core/wmem_max | sort -n | head -n 1)
	mkdir "$tmp/bin"
	cp "$BUILD/winnowd" "$tmp/bin/"
	chmod -R a+rX "$tmp"
	plain=()
	[ "$(id -u)" != 0 ] || plain=(setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all)
	for wanted in "$most:0" $((most * 3 / 2)):1; do
		INSIDE="${plain[*]}" BUILD=$tmp/bin winnowd --insecure-no-key --buffer-bytes "${wanted%:*}"
		until_ready "$tmp/winnowd-$PORT.log"
		winnowd_stop
		[ "$(grep -cE "level=warn event=small_buffers .*wanted=${wanted%:*} " "$tmp/winnowd-$PORT.log")" = "${wanted#*:}" ] ||
			fail "asked for ${wanted%:*} bytes where $most are granted, winnowd says: $(cat "$tmp/winnowd-$PORT.log")"
	done
fi

echo "both formats, and nobody reading"
