#!/usr/bin/env bash
# Random bytes on either port, half-open peers, floods of strays: counted, dropped, and a job beside does not notice.
. "$(dirname "$0")/lib.sh"
metrics=$(free_port)
winnowd --insecure-no-key --metrics "$HOST:$metrics" --connections-max 64
steady good WINNOW_INSECURE_NO_KEY=1
sleep 0.5

"${worker_side[@]}" python3 - "$HOST" "$PORT" <<'P' || fail "the garbage sender failed"
import os, random, socket, struct, sys, time
random.seed(7)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
to = (sys.argv[1], int(sys.argv[2]))
for i in range(20000):
    u.sendto(os.urandom(random.choice((0, 1, 5, 31, 32, 33, 100, 1400))), to)
    kind, channel = random.choice((1, 2, 3, 4, 5, 6, 7, 0x81, 0x82, 255)), random.choice((0, 0, 1, 256, 65535))
    head = struct.pack("<HBBHHQIIQ", 0x4e57, random.choice((3, 3, 3, 0, 2)), kind, channel, random.choice((0, 1, 2, 65535)),
                       random.getrandbits(64), random.getrandbits(32), random.getrandbits(32), random.getrandbits(64))
    u.sendto(head + os.urandom(random.choice((0, 1, 40, 100, 1000))), to)
held = []
for text in (b"\n", b"{}\n", b"GET / HTTP/1.1\r\n\r\n", b"[" * 5000 + b"\n", b"\0\0\0\n", os.urandom(5000), b"x" * 20000,
             b'{"type":"join"}\n', b'{"type":"leave"}\n', b'{"type":"ping","type":"ping"}\n', b'\xff\xfe\n'):
    s = socket.create_connection(to, 5)
    s.sendall(text)
    held.append(s)
for i in range(40):  # half-open: they say nothing, or half a line
    s = socket.create_connection(to, 5)
    if i % 2:
        s.sendall(b'{"type":"jo')
    held.append(s)
time.sleep(0.5)
for s in held[:11]:  # those that said something wrong were told so and cut off
    s.settimeout(3)
    data = b""
    try:
        while True:
            more = s.recv(65536)
            if not more:
                break
            data += more
    except ConnectionResetError:
        pass
    assert b'"hello"' in data, data
closed = 0
until = time.monotonic() + 6  # the silent ones are cut off after five seconds
for s in held[11:]:
    s.settimeout(max(until - time.monotonic(), 1))
    try:
        while s.recv(65536):
            pass
        closed += 1
    except ConnectionResetError:
        closed += 1
    except socket.timeout:
        pass
assert closed == 40, "only %d of 40 half-open peers were cut off" % closed
P
"${worker_side[@]}" python3 -c 'import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())' \
	"http://$HOST:$metrics/metrics" >"$tmp/metrics"
for reason in short bad_magic bad_version bad_kind unknown_channel bad_seal; do
	grep -qE "^winnow_packets_dropped_total\{reason=\"$reason\"\} [1-9]" "$tmp/metrics" || fail "no drops for $reason"
done
[[ ${WINNOWD_OPTIONS:-} != *xdp* ]] || grep -qE '^winnow_xdp_packets_total\{verdict="added"\} [1-9]' "$tmp/metrics" ||
	fail "the kernel has added nothing"
steady_ends good
[ "$(grep -c 'event=refused' "$tmp/winnowd-$PORT.log")" -ge 40 ] || fail "refusals are not logged"
winnowd_stop
echo "dropped and counted"
