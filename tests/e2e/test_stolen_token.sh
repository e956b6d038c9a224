#!/usr/bin/env bash
# Somebody who has read a worker's token, and sends from an address of his own: he gets nothing, changes nothing, and is counted.
# waits: for datagrams that must not come
. "$(dirname "$0")/lib.sh"
metrics=$HOST:$(free_port)
winnowd --insecure-no-key --threads 1 --metrics "$metrics"
timeout 60 python3 tests/e2e/stolen_token.py "$PORT" || fail "see above"
count=$(metric "$metrics" 'winnow_packets_dropped_total{reason="bad_address"}')
[ "$count" = 4 ] || fail "$count datagrams are counted, want 4"
