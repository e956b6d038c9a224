#!/usr/bin/env bash
# What a worker that cannot join yet says, and when: a wrong address, a name that is unknown, ranks that do not come, a winnowd of its
# own that cannot start; and what it says when it has joined, from the command line and from Python.
# waits: for times in which nothing happens
. "$(dirname "$0")/lib.sh"
export WINNOW_INSECURE_NO_KEY=1
first_line() { # file pattern: it comes while the program runs, and says it by its first line
	await . "$1"
	head -n 1 "$1" | seen -E "$2" || fail "the first line is not /$2/: $(cat "$1")"
}
nobody=127.0.0.1:$(free_port)
began=$(date +%s%N)
start wrong "$BUILD/winnow" bench --aggregators "$nobody" --join-timeout 12s
first_line "$tmp/wrong.err" "^winnow bench: rank 0: $nobody: Connection refused; trying for 9 s$"
took=$((($(date +%s%N) - began) / 1000000))
if [ $took -lt 1900 ]; then fail "after $took ms it is said that nobody answers, want 2000"; fi
[ ! -e "$tmp/wrong.status" ] || fail "it has ended before it said so"
winnowd
start some "$BUILD/winnow" bench --aggregators "$HOST:$PORT,$nobody" --join-timeout 5s
finish wrong 20 && fail "it has joined nobody"
[ "$(wc -l <"$tmp/wrong.err")" = 2 ] || fail "want two lines: $(cat "$tmp/wrong.err")"
tail -n 1 "$tmp/wrong.err" | seen 'cannot join: .*no answer: Connection refused' || fail "the reason: $(cat "$tmp/wrong.err")"
finish some 20 && fail "it has joined without one of its aggregators"
first_line "$tmp/some.err" "$nobody: Connection refused; trying for 4 s"

# Ranks that do not come are named, also where the worker's time is shorter than the aggregator's.
start lonely "$BUILD/winnow" bench --aggregators "$HOST:$PORT" --rank 2 --world 4 --join-timeout 7s
finish lonely 20 && fail "a world of one"
first_line "$tmp/lonely.err" "rank 2: $HOST:$PORT: waiting for rank 0, 1, 3 of 4 to join$"
tail -n 1 "$tmp/lonely.err" | seen 'could not join within 7.0 s: waiting for rank 0, 1, 3 of 4 to join' || fail "who is missing: $(cat "$tmp/lonely.err")"

# Its own winnowd cannot start: all of it ends at once.
mkdir "$tmp/bare"
cp "$BUILD/winnow" "$tmp/bare/"
began=$SECONDS
status=0
env PATH=/usr/bin:/bin LD_LIBRARY_PATH="$BUILD" "$tmp/bare/winnow" bench --local 3 >"$tmp/local.out" 2>"$tmp/local.err" || status=$?
[ $status = 1 ] || fail "bench without a winnowd: exit status $status"
[ $((SECONDS - began)) -lt 10 ] || fail "bench without a winnowd took $((SECONDS - began)) s"
grep -q '^winnow bench: cannot run winnowd: No such file' "$tmp/local.err" || fail "bench without a winnowd: $(cat "$tmp/local.err")"
grep -q "^winnow bench: this host's winnowd ended with status 127, so the workers are being ended$" "$tmp/local.err" || fail "bench without a winnowd: $(cat "$tmp/local.err")"

# A name that is unknown is the reason, also when the last question has no answer.
[ -n "${SAN:-}" ] || {
	gcc -shared -fPIC -O2 -D_GNU_SOURCE -o "$tmp/no_names.so" tests/e2e/no_names.c || fail "no_names.c does not compile"
	start unknown env LD_PRELOAD="$tmp/no_names.so" "$BUILD/winnow" bench --aggregators nowhere.test:5555 --join-timeout 6s
	first_line "$tmp/unknown.err" "rank 0: cannot find host 'nowhere.test': Name or service not known; trying for 4 s$"
	finish unknown 20 && fail "it has joined nobody"
	tail -n 1 "$tmp/unknown.err" | seen "cannot join: cannot find host 'nowhere.test': Name or service not known" || fail "the reason is lost: $(cat "$tmp/unknown.err")"
}

# What has been joined, for those who ask; and a variable that nobody reads.
joined="rank 0: joined job '[a-z]+': workers=1 datapath=udp multicast=1/1 payload=[0-9]+ isa=[a-z0-9]+ channels=1 key=no slice_us=[0-9]+ nice=-?[0-9]+ aggregators=$HOST:$PORT"
one=(--aggregators "$HOST:$PORT" --size 4K --iters 1)
"$BUILD/winnow" bench "${one[@]}" 2>"$tmp/quiet.err" >/dev/null || fail "it does not join: $(cat "$tmp/quiet.err")"
[ ! -s "$tmp/quiet.err" ] || fail "it says something without being asked: $(cat "$tmp/quiet.err")"
WINNOW_DEBUG=info "$BUILD/winnow" bench "${one[@]}" 2>"$tmp/told.err" >/dev/null || fail "it does not join: $(cat "$tmp/told.err")"
grep -qE "^winnow bench: $joined$" "$tmp/told.err" || fail "what it has joined: $(cat "$tmp/told.err")"
python=(env PYTHONPATH=client/python WINNOW_LIBRARY="$PWD/$BUILD/libwinnow.so" WINNOW_AGGREGATORS="$HOST:$PORT" WINNOW_JOB=py /usr/bin/python3 -c)
[ -n "${SAN:-}" ] || {
	"${python[@]}" 'import logging, winnow
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
winnow.Comm().close()' 2>"$tmp/python.err" || fail "$(cat "$tmp/python.err")"
	grep -qE "^INFO $joined$" "$tmp/python.err" || fail "Python's log: $(cat "$tmp/python.err")"
	WINNOW_DEBUG=info "${python[@]}" 'import winnow; winnow.Comm().close()' 2>"$tmp/python.err" || fail "$(cat "$tmp/python.err")"
	grep -qE "^winnow: $joined$" "$tmp/python.err" || fail "Python with WINNOW_DEBUG: $(cat "$tmp/python.err")"
	WINNOW_JOINTIMEOUT=3 "${python[@]}" 'import winnow; winnow.Comm(debug="off").close()' 2>"$tmp/python.err" || fail "$(cat "$tmp/python.err")"
	grep -qE "^rank 0: WINNOW_JOINTIMEOUT in the environment has no effect; did you mean WINNOW_JOIN_TIMEOUT\?$" "$tmp/python.err" || fail "a wrong variable: $(cat "$tmp/python.err")"
	"${python[@]}" 'import winnow; winnow.Comm().close()' 2>"$tmp/python.err" || fail "$(cat "$tmp/python.err")"
	[ ! -s "$tmp/python.err" ] || fail "Python says something without being asked: $(cat "$tmp/python.err")"
}
# Once for all workers, whichever of their processes and libraries looks, and once for the winnowd beside them.
WINNOW_JOINTIMEOUT=3 "$BUILD/winnow" bench --local 3 --size 4K --iters 1 2>"$tmp/strange.err" >/dev/null || fail "it does not join: $(cat "$tmp/strange.err")"
strange='WINNOW_JOINTIMEOUT in the environment has no effect; did you mean WINNOW_JOIN_TIMEOUT?'
[ "$(sort "$tmp/strange.err")" = "winnow bench: rank 0: $strange
winnowd: $strange" ] || fail "a wrong variable: $(cat "$tmp/strange.err")"
# A program in C, which has no log.
WINNOW_DEBUG=warn WINNOW_AGGREGATORS=$nobody WINNOW_JOIN_TIMEOUT=4s WINNOW_JOB=c "$BUILD/tests/e2e/caller" 0 1 2>"$tmp/c.err" </dev/null && fail "it has joined nobody"
grep -qE "^winnow: rank 0: $nobody: Connection refused; trying for 3 s$" "$tmp/c.err" || fail "a program in C: $(cat "$tmp/c.err")"
echo "said, each in time"
