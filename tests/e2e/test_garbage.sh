#!/usr/bin/env bash
# Random datagrams, and strays with headers of ours: counted, dropped, and a job beside does not notice. (Nonsense by TCP is in
# tests/protocol/test_joining.py, peers that hold connections are in test_strangers.sh.)
. "$(dirname "$0")/lib.sh"
metrics=$(free_port)
winnowd --insecure-no-key --metrics "$HOST:$metrics"
steady good WINNOW_INSECURE_NO_KEY=1
sleep 0.5

"${worker_side[@]}" python3 - "$HOST" "$PORT" <<'P' || fail "the garbage sender failed"
import os, random, socket, struct, sys
random.seed(7)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
to = (sys.argv[1], int(sys.argv[2]))
for i in range(20000):
    u.sendto(os.urandom(random.choice((0, 1, 5, 31, 32, 33, 100, 1400))), to)
    kind, channel = random.choice((1, 2, 3, 4, 5, 6, 7, 0x81, 0x82, 255)), random.choice((0, 0, 1, 256, 65535))
    head = struct.pack("<HBBHHQIIQ", 0x4e57, random.choice((3, 3, 3, 0, 2)), kind, channel, random.choice((0, 1, 2, 65535)),
                       random.getrandbits(64), random.getrandbits(32), random.getrandbits(32), random.getrandbits(64))
    u.sendto(head + os.urandom(random.choice((0, 1, 40, 100, 1000))), to)
P
"${worker_side[@]}" python3 -c 'import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())' \
	"http://$HOST:$metrics/metrics" >"$tmp/metrics"
for reason in short bad_magic bad_version bad_kind unknown_channel bad_seal; do
	grep -qE "^winnow_packets_dropped_total\{reason=\"$reason\"\} [1-9]" "$tmp/metrics" || fail "no drops for $reason"
done
[[ ${WINNOWD_OPTIONS:-} != *xdp* ]] || grep -qE '^winnow_xdp_packets_total\{verdict="added"\} [1-9]' "$tmp/metrics" ||
	fail "the kernel has added nothing"
# Who says nothing is cut off.
# shellcheck disable=SC2016 # the inner shell's
"${worker_side[@]}" timeout 20 bash -c 'exec 3<>"/dev/tcp/$0/$1" && cat <&3' "$HOST" "$PORT" | seen 'no JOIN within 5.0 s' || fail "who says nothing may stay"
steady_ends good
winnowd_stop
echo "dropped and counted"
