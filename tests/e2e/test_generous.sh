#!/usr/bin/env bash
# An aggregator that grants more than a worker has: the worker says no in one line, and has not reserved it. So do a time that it
# did not ask for, and addresses that are no single host's, or no group's of its own.
. "$(dirname "$0")/lib.sh"
granted() { # channels field..: an aggregator on PORT
	PORT=$(free_port)
	/usr/bin/python3 tests/e2e/generous.py "$PORT" "$@" >"$tmp/generous.out" 2>"$tmp/generous.err" &
	pids+=($!)
	await here "$tmp/generous.out"
}
tiny=(--insecure-no-key --size 4K --iters 1 --join-timeout 20s)
says_no() { # pattern channels field..
	granted "${@:2}"
	rm -f "$tmp/most"
	refuses 1 "$1" env ${LIMIT:+"WINNOW_MEMORY_MB=$LIMIT"} "$tmp/measured" "$tmp/most" "$BUILD/winnow" bench --aggregators "127.0.0.1:$PORT" "${tiny[@]}"
}
# The most memory that a command has resident, in KB.
cat >"$tmp/measured" <<'END'
#!/usr/bin/python3
import resource, subprocess, sys
status = subprocess.run(sys.argv[2:]).returncode
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(status)
END
chmod +x "$tmp/measured"
most=200000
[ -z "${SAN:-}" ] || most=2000000
modest() { [ "$(cat "$tmp/most")" -lt "$most" ] || fail "the worker took $(cat "$tmp/most") KB"; }

says_no 'take [0-9]{5} MB of memory here, 2048 are allowed \(memory_mb, WINNOW_MEMORY_MB\)' 64
modest
LIMIT=100 says_no 'take [0-9]{3} MB of memory here, 100 are allowed' 1
modest
# Less than that is fine: it goes on to the operation, to which this aggregator has no answer.
granted 1 op_slots=32 segments_ahead=8 window=128
start small env WINNOW_MEMORY_MB=10 "$BUILD/winnow" bench --aggregators "127.0.0.1:$PORT" "${tiny[@]}" --timeout 1s --silence 2s
expect small 20 1 'silent for 2.0 s|waited|stalled'
# The library's file says it, too.
printf '[winnow]\nmemory-mb = 50\n' >"$tmp/w.ini"
granted 1
refuses 1 'MB of memory here, 50 are allowed' env WINNOW_CONFIG="$tmp/w.ini" "$BUILD/winnow" bench --aggregators "127.0.0.1:$PORT" "${tiny[@]}"
refuses 1 'WINNOW_MEMORY_MB is 0: want 1 to 1048576' env WINNOW_MEMORY_MB=0 "$BUILD/winnow" bench --aggregators "127.0.0.1:$PORT" "${tiny[@]}"

says_no 'a WELCOME with silence_ms 60000: want at most 10000, as we asked for' 1 silence_ms=60000
says_no 'a WELCOME with stall_ms 864000000: want at most 600000, as we asked for' 1 stall_ms=864000000
for group in 224.0.0.251:5353 10.0.0.1:5555 '[ff02::fb]:5353' '[fd00::1]:5555'; do
	says_no "'group' is missing, or not a multicast address and port, neither 224.0.0.0/24 nor ff00::/12, or empty" 1 "group=$group"
done
for address in 239.77.0.1:5555 255.255.255.255:5555 0.0.0.0:5555 '[ff15::1]:5555' '[::]:5555' '[::ffff:239.1.1.1]:5555'; do
	says_no "'data_address' is missing, or not a host's IP address and port, or empty" 1 "data_address=$address"
done
for net in 224.0.0.0 ff02::8077:0; do
	refuses 2 'want a multicast /16.* not 224.0.0.0, nor what begins with ff0' "$BUILD/winnowd" --insecure-no-key --check --multicast "$net"
done

# A real job, with more than it may have here; the aggregator and the other worker learn why.
winnowd --insecure-no-key --op-slots 1024 --segments-ahead 64
start one env WINNOW_MEMORY_MB=100 "$BUILD/winnow" bench --aggregators "127.0.0.1:$PORT" "${tiny[@]}" --rank 0 --world 2
start two "$BUILD/winnow" bench --aggregators "127.0.0.1:$PORT" "${tiny[@]}" --rank 1 --world 2
expect one 20 1 'MB of memory here, 100 are allowed'
expect two 20 1 'rank 0.*MB of memory here, 100 are allowed'
echo "no more than is allowed"
