#!/usr/bin/env bash
# Strangers who hold whatever they can get: hundreds of connections to the metrics port and to the control port, idle or a byte at a
# time, and joins that lead to nothing. Probes are answered, workers come in, a job that runs does not notice.
. "$(dirname "$0")/lib.sh"
metrics=127.0.0.1:$(free_port)
winnowd --insecure-no-key --metrics "$metrics" --connections-max 100 --jobs-max 8
steady good WINNOW_INSECURE_NO_KEY=1

# Opens connections from SOURCE without end, a new one each time that an old one is closed, up to COUNT at a time; says "full"
# when so many have been opened.
cat >"$tmp/hold.py" <<'P'
import itertools, select, socket, sys, time
port, source, count, text = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4].encode().decode("unicode_escape").encode()
poll, held, opened = select.poll(), {}, 0
begun = time.monotonic()
while True:
    if len(held) < count and opened < 2 * count + (time.monotonic() - begun) * 200:
        s = socket.socket()
        s.bind((source, 0))
        s.settimeout(5)
        s.connect(("127.0.0.1", port))
        if text:
            s.sendall(text.replace(b"NUMBER", str(opened).encode()))
        held[s.fileno()] = s
        poll.register(s, select.POLLIN)
        opened += 1
        if opened == count:
            print("full", flush=True)
    for fd, _ in poll.poll(0 if len(held) < count else 50):
        try:
            if held[fd].recv(65536):
                continue
        except OSError:
            pass
        poll.unregister(fd)
        held.pop(fd).close()
    if text and opened % 50 == 0:  # a byte more, of a request that never ends
        for s in list(held.values())[:20]:
            try:
                s.send(b"x")
            except OSError:
                pass
P
hold() { # name port source count text
	start "$1" python3 "$tmp/hold.py" "${@:2}"
	await full "$tmp/$1.out"
}
let_go() { # name..
	local name
	for name in "$@"; do kill -KILL -- "-${leader[$name]}"; done 2>/dev/null
}
workers_come_in() { # job..
	local job
	for job in "$@"; do bench --insecure-no-key --job "$job" --size 64K --iters 2 --check >/dev/null 2>"$tmp/$job.err" || fail "job $job was kept out: $(cat "$tmp/$job.err")"; done
}

# ---- the metrics port ----
hold idle "${metrics#*:}" 127.0.0.1 300 ""
hold slow "${metrics#*:}" 127.0.0.2 300 "GET /healthz HTTP/1.1\r\nX-More: "
# A prober comes again, as Kubernetes' does: on a busy machine the strangers may open a hundred connections before it has asked.
asked() { # command..: up to three times
	local i
	for i in 1 2 3; do
		"$@" >"$tmp/status" 2>&1 && return
		echo "try $i: $(tail -n 1 "$tmp/status")"
	done
	return 1
}
for i in $(seq 10); do
	asked "$BUILD/winnow" status --alive --quiet "$metrics" || fail "probe $i was not answered"
	asked python3 -c 'import sys, urllib.request; assert urllib.request.urlopen("http://%s/healthz" % sys.argv[1], timeout=1).status == 200' "$metrics" ||
		fail "/healthz was not answered within a second, the ${i}th time"
done
let_go idle slow

# ---- the control port ----
hold silent "$PORT" 127.0.0.2 400 ""
hold near "$PORT" 127.0.0.1 400 '{"type":"jo'
workers_come_in one two three four five
connections=$(metric "$metrics" 'winnow_connections ')
[ "$connections" -le 100 ] || fail "$connections connections, more than --connections-max"
[ "$(metric "$metrics" 'winnow_joins_refused_total{reason="connections"}')" -ge 300 ] || fail "those who gave way are not counted"
grep -q 'event=refused peer=127.0.0.2:.* code=connections text="100 connections are open here' "$tmp/winnowd-$PORT.log" || fail "those who gave way are not logged"
let_go silent near

# ---- jobs that never begin ----
# shellcheck disable=SC2016 # JSON
join='{"type":"join","version":3,"software":"x","job":"sNUMBER","host":"h","rank":0,"world":2,"payload":1472,"rcvbuf":1048576,"silence_ms":60000,"stall_ms":60000}\n'
hold joins "$PORT" 127.0.0.2 20 "$join"
"$BUILD/winnow" status "$metrics" --json >"$tmp/status"
[ "$(grep -c '"state": "forming"' "$tmp/status")" = 7 ] || fail "the stranger's jobs are not all there: $("$BUILD/winnow" status "$metrics")"
workers_come_in six seven eight
let_go joins

# Half-open, and gone without a word: their places are free again.
left() { echo "$(metric "$metrics" 'winnow_connections ') $(metric "$metrics" 'winnow_jobs ')"; }
nothing_left() { [ "$(left)" = "2 1" ]; }
soon 5 nothing_left || fail "something of the strangers has stayed: $("$BUILD/winnow" status "$metrics")"
steady_ends good
winnowd_stop

# ---- few descriptors ----
cat >"$tmp/few" <<'E2'
#!/bin/bash
ulimit -n 200
exec "$@"
E2
chmod +x "$tmp/few"
INSIDE=$tmp/few winnowd --insecure-no-key --metrics "$metrics" --threads 1
log=$tmp/winnowd-$PORT.log
grep -qE 'event=few_descriptors limit=200 connections_max=[0-9]+ wanted=4096' "$log" || fail "it does not say that descriptors are few: $(cat "$log")"
hold many "$PORT" 127.0.0.2 300 ""
hold probes "${metrics#*:}" 127.0.0.2 300 ""
workers_come_in nine ten
asked "$BUILD/winnow" status --alive --quiet "$metrics" || fail "a probe was not answered"
! grep -q event=no_descriptors "$log" || fail "it has run out of descriptors all the same"
let_go many probes
winnowd_stop
sed -i 's/-n 200/-n 40/' "$tmp/few"
refuses 1 '40 descriptors may be open, but at least [0-9]+ are needed: raise ulimit -n' "$tmp/few" "$BUILD/winnowd" --listen "127.0.0.1:$PORT" --insecure-no-key --metrics no
# The soft limit is not the end: it is raised as far as it takes.
sed -i 's/ulimit -n 40/ulimit -S -n 100/' "$tmp/few"
INSIDE=$tmp/few winnowd --insecure-no-key --metrics "$metrics" --connections-max 150
! grep -q event=few_descriptors "$tmp/winnowd-$PORT.log" || [ "$(ulimit -H -n)" -lt 400 ] || fail "the soft limit was not raised"

echo "all served"
