#!/usr/bin/env bash
# release: every start, job and end once more, slowly
# no-sanitizers: valgrind and they exclude each other
# winnowd from start to end under valgrind: jobs, nonsense, HTTP, connections that stay open, SIGTERM; nothing is used after it was
# freed or before it was written, and nothing is left behind.
. "$(dirname "$0")/lib.sh"
command -v valgrind >/dev/null || {
	echo "no valgrind"
	exit 77
}
# The padding of a struct sock_fprog, which the kernel does not look at.
cat >"$tmp/valgrind.supp" <<'S'
{
   padding
   Memcheck:Param
   socketcall.setsockopt(optval)
   ...
   fun:set_steering
}
S
metrics=127.0.0.1:$(free_port)
INSIDE="valgrind -q --suppressions=$tmp/valgrind.supp --error-exitcode=9 --leak-check=full --show-leak-kinds=definite,indirect,possible --errors-for-leak-kinds=definite,indirect,possible" \
	winnowd --insecure-no-key --metrics "$metrics" --threads 2 --connections-max 8
for rank in 0 1; do
	start "job$rank" bench --insecure-no-key --job one --rank $rank --world 2 --size 64K --iters 3 --warmup 1 --check --join-timeout 100
done
for rank in 0 1; do expect "job$rank" 100 0; done
python3 - "$PORT" "$metrics" <<'P' || fail "a stranger was not served"
import socket, sys, urllib.request
control, metrics = ("127.0.0.1", int(sys.argv[1])), sys.argv[2]
for path in ("/status", "/metrics", "/healthz", "/readyz"):
    assert urllib.request.urlopen(f"http://{metrics}{path}", timeout=60).status == 200, path
for text in (b"nonsense\n", b"x" * 20000):
    with socket.create_connection(control, 60) as peer:
        peer.sendall(text)
        try:
            while peer.recv(4096):
                pass
        except ConnectionResetError:
            pass
P
# What is open when the end comes: a job, connections that say nothing, HTTP that has asked nothing and that is kept alive.
start last bench --insecure-no-key --job last --size 64K --iters 1000000 --join-timeout 100
cat >"$tmp/hold.py" <<'P'
import socket, sys, time
held = [socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60) for _ in range(3)]
host, port = sys.argv[2].split(":")
held += [socket.create_connection((host, int(port)), 60) for _ in range(3)]
held[3].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
assert held[3].recv(4096)
open(sys.argv[3], "w").write("held\n")
time.sleep(300)
P
start hold python3 "$tmp/hold.py" "$PORT" "$metrics" "$tmp/held"
soon 60 grep -q 'event=job_started job=last' "$tmp/winnowd-$PORT.log"
soon 60 test -s "$tmp/held" || fail "winnowd takes no connections"
kill -TERM "$DAEMON"
sleep 1
kill -TERM "$DAEMON"
expect last 60 1 'shutting down'
status=0
wait "$DAEMON" || status=$?
! grep -q '^==' "$tmp/winnowd-$PORT.log" || fail "valgrind says: $(grep '^==' "$tmp/winnowd-$PORT.log" | head -n 40)"
[ "$status" = 0 ] || fail "winnowd ended with status $status"
echo "nothing found"
