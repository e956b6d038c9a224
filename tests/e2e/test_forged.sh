#!/usr/bin/env bash
# Somebody on the path changes and forges datagrams: without a key sums are wrong; with one they are right, and he is
# counted. docs/SECURITY.md says what he can do; what he sends again later is in tests/protocol/test_faults.py.
. "$(dirname "$0")/lib.sh"
WINNOW_KEY=correct-horse-battery
metrics=$HOST:$(free_port)
forger() { # what..
	PROXY=$(free_port)
	python3 tests/e2e/forged.py "$PROXY" "$PORT" "$@" >"$tmp/forger.out" &
	FORGER=$!
	pids+=("$FORGER")
	wait_port "$HOST" "$PROXY" || fail "the forger does not listen"
}
forger_ends() {
	kill -TERM $FORGER
	wait $FORGER || fail "the forger ended with status $?"
	cat "$tmp/forger.out"
}
did() { sed -E "s/.*$1=([0-9]+).*/\1/" "$tmp/forger.out"; }
workers() { # bench options..
	local rank
	rm -f "$tmp"/r?.status
	for rank in 0 1; do
		start r$rank "$BUILD/winnow" bench --aggregators "$HOST:$PROXY" --job forged --rank $rank --world 2 --check --json --warmup 0 --multicast=0 "$@"
	done
}
all_right() { for rank in 0 1; do expect r$rank 60 0; done; }
drops() { metric "$metrics" "winnow_packets_dropped_total{reason=\"$1\"}"; }

winnowd --insecure-no-key --metrics no --payload-max 1472
forger data
workers --insecure-no-key --size 1M --density 0.5 --iters 3 --wire f32
for rank in 0 1; do soon 60 test -s "$tmp/r$rank.status"; done
forger_ends
[ "$(json "$tmp/r0.out" errors)" != 0 ] || fail "what the forger does changes nothing even without a key"

export WINNOW_KEY
winnowd --metrics "$metrics" --payload-max 1472
forger flip data double
workers --size 0,4K,1M --density 0.5 --iters 5 --wire f32
all_right
workers --size 1M --density 0.2 --iters 5 --wire fixed32
all_right
forger_ends
for what in flip data double; do [ "$(did $what)" -gt 5 ] || fail "the forger did little: $what"; done
[ "$(drops bad_seal)" -gt 20 ] || fail "$(drops bad_seal) datagrams were seen as forged"

# A record in a worker's name ends its connection: he could have cut it. Nobody does what it says.
forger abort
workers --size 1M --iters 100000 --silence 1
for rank in 0 1; do expect r$rank 30 1 'rank [01] \(.*\) is lost: it sent something that is not a message: a forged TLS record|its TLS is broken'; done
forger_ends
[ "$(did abort)" -gt 0 ] || fail "the forger did nothing: abort"
grep -q 'event=job_failed job=forged .*somebody on the path has made it' "$tmp/winnowd-$PORT.log" || fail "a forged record is not logged"

# An abort from somebody who is not of the job: he has no key.
python3 - "$PORT" <<'P' || fail "an abort of a stranger"
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(b'{"type":"abort","code":"aborted","text":"forged"}\n')
assert b"this aggregator needs the job's key" in s.makefile("rb").read()
P
