#!/usr/bin/env bash
# An aggregator that grants more than a worker may have: the worker says no in one line, and has not reserved it; the aggregator and
# the other worker learn why.
. "$(dirname "$0")/lib.sh"
tiny=(--insecure-no-key --size 4K --iters 1 --join-timeout 20s)
winnowd --insecure-no-key --op-slots 1024 --segments-ahead 64
work() { "$BUILD/winnow" bench --aggregators "$HOST:$PORT" "${tiny[@]}" "$@"; }
# The most memory that a command has resident, in KB.
cat >"$tmp/measured" <<'END'
#!/usr/bin/python3
import resource, subprocess, sys
status = subprocess.run(sys.argv[2:]).returncode
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(status)
END
chmod +x "$tmp/measured"
refuses 1 'need [0-9]{3} MB of memory on this worker, but only 100 are allowed \(memory_mb, WINNOW_MEMORY_MB\)' env WINNOW_MEMORY_MB=100 \
	"$tmp/measured" "$tmp/most" "$BUILD/winnow" bench --aggregators "$HOST:$PORT" "${tiny[@]}"
[ "$(cat "$tmp/most")" -lt "$([ -z "${SAN:-}" ] && echo 100000 || echo 2000000)" ] || fail "the worker took $(cat "$tmp/most") KB"
# The library's file says it, too.
printf '[winnow]\nmemory-mb = 50\n' >"$tmp/w.ini"
refuses 1 'MB of memory on this worker, but only 50 are allowed' env WINNOW_CONFIG="$tmp/w.ini" "$BUILD/winnow" bench --aggregators "$HOST:$PORT" "${tiny[@]}"
refuses 1 'WINNOW_MEMORY_MB is 0: want 1 to 1048576' env WINNOW_MEMORY_MB=0 "$BUILD/winnow" bench --aggregators "$HOST:$PORT" "${tiny[@]}"
WINNOW_MEMORY_MB=100 start one work --rank 0 --world 2
start two work --rank 1 --world 2
expect one 20 1 'MB of memory on this worker, but only 100 are allowed'
expect two 20 1 'rank 0.*MB of memory on this worker, but only 100 are allowed'
for net in 224.0.0.0 ff02::8077:0; do
	refuses 2 'want a multicast /16.* 224.0.0.0 and addresses that begin with ff0 are reserved' "$BUILD/winnowd" --insecure-no-key --check --multicast "$net"
done
echo "no more than is allowed"
