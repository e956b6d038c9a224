#!/usr/bin/env bash
# /metrics as Prometheus' own parser reads it, and /status: they agree with each other and with what workers have sent.
. "$(dirname "$0")/lib.sh"
python=/usr/bin/python3
$python -c 'import prometheus_client' 2>/dev/null || {
	echo "no python3-prometheus-client"
	exit 77
}
metrics=$(free_port)
winnowd --insecure-no-key --metrics "127.0.0.1:$metrics"
until_ready "$tmp/winnowd-$PORT.log"
grep -q "event=ready .* metrics=127.0.0.1:$metrics " "$tmp/winnowd-$PORT.log" || fail "winnowd does not say where it serves metrics"
# One number for the buffer, wherever it is said: what was asked for, if the kernel grants it.
said=$(sed -n 's/.*event=ready .* rcvbuf=\([0-9]*\).*/\1/p' "$tmp/winnowd-$PORT.log")
granted=$(sed -n 's/.*event=small_buffers rcvbuf=\([0-9]*\).*/\1/p' "$tmp/winnowd-$PORT.log")
[ "$said" = "${granted:-16777216}" ] || fail "event=ready says rcvbuf=$said, and ${granted:-16777216} is granted"
python3 -c 'import json, sys, urllib.request
sys.exit(json.load(urllib.request.urlopen(sys.argv[1]))["rcvbuf_bytes"] != int(sys.argv[2]))' "http://127.0.0.1:$metrics/status" "$said" || fail "/status says another rcvbuf than $said"
start going0 bench --silence 2 --insecure-no-key --job going --rank 0 --world 2 --size 1M --iters 1000000
start going1 bench --silence 2 --insecure-no-key --job going --rank 1 --world 2 --size 1M --iters 1000000 --multicast=no
start waiting bench --insecure-no-key --job waiting --rank 0 --world 2 --size 1M
start ended0 bench --insecure-no-key --job ended --size 4M --iters 4 --warmup 0 --json
expect ended0 20 0
refuses 1 'world' bench --insecure-no-key --job waiting --rank 0 --world 3
$python tests/e2e/metrics_check.py "http://127.0.0.1:$metrics" "$tmp/ended0.out" || fail "metrics"
kill -0 "$DAEMON" || fail "winnowd is gone"
