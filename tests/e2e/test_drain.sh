#!/usr/bin/env bash
# SIGTERM: no new jobs, running ones may end, then exit status 0; a second SIGTERM or the limit ends them.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
metrics=$(free_port)
get() { python3 -c 'import sys, urllib.request, urllib.error
try: print(urllib.request.urlopen(sys.argv[1], timeout=5).status)
except urllib.error.HTTPError as e: print(e.code)' "http://127.0.0.1:$metrics$1"; }

winnowd --insecure-no-key --metrics "127.0.0.1:$metrics" --drain-timeout 60s
[ "$(get /healthz) $(get /readyz) $(get /nothing)" = "200 200 404" ] || fail "HTTP before"
start going bench --insecure-no-key --job going --size 4M --iters "$(scaled 2000)" --check
await "event=job_started job=going " "$tmp/winnowd-$PORT.log"
kill -STOP "$(pid_of going)" # it does not end while others ask
kill -TERM "$DAEMON"
sleep 0.2
[ "$(get /healthz) $(get /readyz)" = "200 503" ] || fail "HTTP while draining"
refuses 1 'shutting down' bench --insecure-no-key --job new --size 4K
kill -CONT "$(pid_of going)"
expect going 60 0
wait "$DAEMON" || fail "drained winnowd ended with status $?"

winnowd --insecure-no-key --drain-timeout 1s
start cut bench --insecure-no-key --job cut --size 4M --iters 1000000
await "event=job_started job=cut " "$tmp/winnowd-$PORT.log"
kill -TERM "$DAEMON"
expect cut 10 1 'shutting down'
wait "$DAEMON" || fail "winnowd ended with status $? after the limit"

winnowd --insecure-no-key
start cut2 bench --insecure-no-key --job cut --size 4M --iters 1000000
await "event=job_started job=cut " "$tmp/winnowd-$PORT.log"
kill -TERM "$DAEMON"
sleep 0.2
kill -TERM "$DAEMON"
expect cut2 10 1 'shutting down'
wait "$DAEMON" || fail "winnowd ended with status $? after two signals"

# A job whose members come and go hands over between two operations: nobody notices, and winnowd ends at once; of two, of
# three, and the only one, which is awaited; with a key as without one.
for ports in 1 2 3; do
	key=WINNOW_INSECURE_NO_KEY=1
	[ $ports != 2 ] || key=WINNOW_KEY=$("$BUILD/winnow" key)
	list=$(for _ in $(seq $ports); do free_port; done | paste -sd,)
	aggregators=127.0.0.1:${list//,/,127.0.0.1:}
	[ -z "${TWO_HOSTS:-}" ] || break # it starts winnowd beside the workers
	env WINNOW_JOB=drained WINNOW_SILENCE=1s "$key" WINNOW_AGGREGATORS="$aggregators" timeout 200 "$BUILD/tests/e2e/members" \
		"$ports" 4 4 100000 drains "$list" "$BUILD/winnowd" --threads 1 --log error --metrics no ||
		fail "$ports winnowd drain: status $?"
done
echo "drained"
