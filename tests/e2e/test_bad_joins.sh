#!/usr/bin/env bash
# Workers that may not join: each is told why in one line, and a job beside them does not notice.
. "$(dirname "$0")/lib.sh"
umask 077
"$BUILD/winnow" key >"$tmp/key"
{
	echo "* $(cat "$tmp/key")"
	echo "secret $("$BUILD/winnow" key)"
} >"$tmp/keys"
winnowd --key-file "$tmp/keys" --join-timeout 2s --workers-max 8 --jobs-max 2 --job-bytes-max 64M
key=(--key-file "$tmp/key")

# Another job runs all the time; it must end well.
steady other "WINNOW_KEY_FILE=$tmp/keys"
sleep 0.5

small=(--size 4K --iters 1 --warmup 0)
refuses 1 'needs the job.s key: set WINNOW_KEY_FILE or WINNOW_KEY' bench "${small[@]}" --insecure-no-key
refuses 1 "wrong key for job 'secret'" bench "${small[@]}" --job secret "${key[@]}"
refuses 1 "wrong key for job 'bench'" env WINNOW_KEY=not-the-right-one "$BUILD/winnow" bench --aggregators "127.0.0.1:$PORT" "${small[@]}"
refuses 1 "wrong key for job 'bench'" env WINNOW_KEY_FILE="$tmp/keys" "$BUILD/winnow" bench --aggregators "127.0.0.1:$PORT" "${small[@]}" --key not-the-right-one
WINNOW_KEY_FILE=/no/such bench "${small[@]}" --job keyed --key "$(cat "$tmp/key")" >"$tmp/keyed.out" 2>"$tmp/keyed.err" || fail "WINNOW_KEY_FILE overrides --key: $(cat "$tmp/keyed.err")"
refuses 2 'key .WINNOW_KEY. contradicts key-file .WINNOW_KEY_FILE.' env WINNOW_KEY=long-enough WINNOW_KEY_FILE=/no/such "$BUILD/winnow" bench --local 2
refuses 1 'may have 1 to 8 workers here, you ask for 9 \(workers-max\)' bench "${small[@]}" "${key[@]}" --world 9
refuses 1 'rank 1 of 2 did not join within 2 s' bench "${small[@]}" "${key[@]}" --rank 0 --world 2
refuses 1 'no answer: Connection refused; is winnowd running there' \
	"$BUILD/winnow" bench --aggregators "127.0.0.1:$(free_port)" "${small[@]}" "${key[@]}" --join-timeout 1s
refuses 1 'cannot find host' "$BUILD/winnow" bench --aggregators no.such.host.invalid:5555 "${small[@]}" "${key[@]}" --join-timeout 1s
[ -n "${SAN:-}" ] || { # a name that is known a moment later
	gcc -shared -fPIC -O2 -D_GNU_SOURCE -o "$tmp/no_names.so" tests/e2e/no_names.c || fail "no_names.c does not compile"
	LD_PRELOAD=$tmp/no_names.so "$BUILD/winnow" bench --aggregators "later.127.0.0.1:$PORT" "${small[@]}" "${key[@]}" --job later >"$tmp/later.out" 2>"$tmp/later.err" ||
		fail "a worker does not ask again for a name: $(cat "$tmp/later.err")"
}

# Two workers with one rank: the second is refused, the first goes on waiting.
start first bench --job twice --rank 0 --world 2 "${small[@]}" "${key[@]}" --join-timeout 5s
sleep 0.3
refuses 1 "rank 0 of job 'twice' is taken by .*127.0.0.1" bench --job twice --rank 0 --world 2 "${small[@]}" "${key[@]}"
start second bench --job twice --rank 1 --world 2 "${small[@]}" "${key[@]}"
expect first 10 0
expect second 10 0

# World sizes that differ: the later one is refused, the job still forms.
start first bench --job worlds --rank 0 --world 2 "${small[@]}" "${key[@]}"
sleep 0.3
refuses 1 "job 'worlds' has world 2 .opened by rank 0, .*you say 3" bench --job worlds --rank 1 --world 3 "${small[@]}" "${key[@]}"
start second bench --job worlds --rank 1 --world 2 "${small[@]}" "${key[@]}"
expect first 10 0
expect second 10 0

# A job that has begun, and a third job where two are allowed.
refuses 1 "rank 1 of job 'other' is taken by" bench --job other --rank 1 --world 2 "${small[@]}" --key-file "$tmp/keys"
start third bench --job third --rank 0 --world 2 "${small[@]}" "${key[@]}"
sleep 0.3
refuses 1 '2 jobs are here, the limit \(jobs-max\)' bench --job fourth "${small[@]}" "${key[@]}"
expect third 10 1 'rank 1 of 2 did not join within 2 s'

# Without a key. (What raw peers say is in tests/protocol/test_joining.py.)
kept=$PORT
winnowd --insecure-no-key --metrics no --job-bytes-max 200K
refuses 1 'runs with --insecure-no-key, but this worker has a key' env WINNOW_KEY=some-long-key "$BUILD/winnow" bench --aggregators "127.0.0.1:$PORT" "${small[@]}"
refuses 1 'the job needs [0-9]+ bytes here, 204800 are allowed \(job-bytes-max\)' bench "${small[@]}" --insecure-no-key
PORT=$kept

# What speaks no TLS is told why by an aggregator with a key, whatever it says.
for said in '{"type":"join"}\n|this aggregator needs the job.s key: set WINNOW_KEY_FILE or WINNOW_KEY' 'GET / HTTP/1.1\r\n\r\n|protocol, by TLS with the job.s key'; do
	exec 3<>"/dev/tcp/127.0.0.1/$PORT"
	# shellcheck disable=SC2059 # it has its own escapes
	printf "${said%%|*}" >&3
	IFS= read -r -t 10 answer <&3
	exec 3>&-
	grep -qE "${said#*|}" <<<"$answer" || fail "$said is answered by '$answer'"
done

# A port in use. Its owner goes on as before, also when a winnowd of the same user shares its UDP port.
python3 tests/e2e/second_start.py "$BUILD/winnowd" || fail "a second winnowd has changed who gets the first one's datagrams"
refuses 1 'cannot listen on TCP 127.0.0.1:.*Address already in use' "$BUILD/winnowd" --listen "127.0.0.1:$PORT" --key-file "$tmp/keys" --log error

steady_ends other
echo "refused with reasons; the job beside was right"
