#!/usr/bin/env bash
# PROTOCOL.md, by a worker in Python that was written from it and shares no code with ours: against winnowd, and beside
# real workers. tests/protocol has both. With sanitizers in winnowd, Python's own process cannot have libwinnow.
# waits: a hundred operations, most of them packet by packet
. "$(dirname "$0")/lib.sh"
. tests/e2e/python.sh
need_modules numpy torch
sealed=$(free_port)
WINNOW_KEY=correct-horse-battery winnowd --threads 1 --metrics "$HOST:$sealed"
keyed=$HOST:$PORT
open=() metrics=$(free_port)
for threads in 2 1 2; do
	winnowd --insecure-no-key --threads $threads --metrics "$([ ${#open[@]} = 0 ] && echo "$HOST:$metrics" || echo no)"
	open+=("$HOST:$PORT")
done
export DUAL=
if grep -qs ' lo$' /proc/net/if_inet6; then
	HOST='[::]' winnowd --insecure-no-key --threads 2 --metrics no
	DUAL="[::1]:$PORT"
fi
export AGGREGATORS="${open[*]}" KEYED=$keyed KEY=correct-horse-battery PYTHONPATH=$PWD/client/python:$PWD/tests/protocol
tests=(test_vectors test_joining test_sums test_faults)
[ -n "${SAN:-}" ] || tests+=(test_beside)
$python -W error::ResourceWarning -m unittest -v "${tests[@]}" || exit 1
for pid in "${pids[@]}"; do kill -0 "$pid" || fail "a winnowd ended meanwhile"; done

# Nothing that these workers sent, lost and doubled as it was, made no sense (PROTOCOL.md section 12). An operation that
# did not would have ended its job, as those that differ on purpose have.
for reason in short bad_magic bad_version bad_kind bad_worker bad_length; do
	count=$(metric "$HOST:$metrics" "winnow_packets_dropped_total{reason=\"$reason\"}")
	[ "$count" = 0 ] || fail "$count packets were dropped: $reason"
done

# Those with another bit, and those of another job or turn of the numbers, were seen as what they are.
[ "$(metric "$HOST:$sealed" 'winnow_packets_dropped_total{reason="bad_seal"}')" -gt 50 ] || fail "forged datagrams are not counted"
