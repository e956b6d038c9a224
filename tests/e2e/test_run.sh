#!/usr/bin/env bash
# winnow run: what workers find, whose words and exit status come out, and that nothing stays behind.
# waits: for processes to end
# shellcheck disable=SC2016 # variables in single quotes are the workers' own
. "$(dirname "$0")/lib.sh"
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT OMP_NUM_THREADS WINNOW_AGGREGATORS WINNOW_JOB
run() { # status, arg..: winnow run ends with that status; its words are in run.out and run.err
	local want=$1 got=0
	shift
	timeout 60 "$BUILD/winnow" run "$@" >"$tmp/run.out" 2>"$tmp/run.err" || got=$?
	[ $got = "$want" ] || fail "winnow run $*: exit status $got, not $want"
}
until_so() { # command..: until it is so, for 20 s
	local _
	for _ in $(seq 400); do
		"$@" && return
		sleep 0.05
	done
	return 1
}
both_said() { [ "$(grep -c "$1" "$tmp/run.out")" = 2 ]; }
both() { # word: until both workers have said it
	until_so both_said "$1" || fail "not both say '$1': $(cat "$tmp/run.out" "$tmp/run.err")"
}
show='echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR $MASTER_PORT"; echo "$OMP_NUM_THREADS $WINNOW_AGGREGATORS" >&2'
run 0 -n 3 -- sh -c "$show"
for rank in 0 1 2; do
	grep -qE "^\[$rank\] $rank $rank 3 3 0 127.0.0.1 [0-9]+$" "$tmp/run.out" || fail "worker $rank did not say so"
	grep -qE "^\[$rank\] [0-9]+ 127.0.0.1:[0-9]+$" "$tmp/run.err" || fail "worker $rank has no aggregator"
done
[ "$(awk '{ print $NF }' "$tmp/run.out" | sort -u | wc -l)" = 1 ] || fail "workers differ in MASTER_PORT"
# No connection may be given it before a worker listens there.
read -r first _ </proc/sys/net/ipv4/ip_local_port_range
[ "$(awk 'NR == 1 { print $NF }' "$tmp/run.out")" -lt "$first" ] || fail "MASTER_PORT is one that the kernel gives to others"
run 0 -n 1 --bare --aggregators 10.9.8.7:1 -- sh -c 'printf "%s" "$WINNOW_AGGREGATORS"; seq 3000'
[ "$(head -n 1 "$tmp/run.out")" = 10.9.8.7:11 ] || fail "--bare or --aggregators"
[ "$(wc -l <"$tmp/run.out")" = 3000 ] || fail "lines are missing"

# A real job: allreduces that are checked, on the winnowd that run starts, and a failing one.
run 0 -n 3 -- sh -c '"$0" bench --aggregators "$WINNOW_AGGREGATORS" --rank "$RANK" --world "$WORLD_SIZE" \
	--size 100K --iters 3 --check --json' "$BUILD/winnow"
grep -q '"errors": *0' "$tmp/run.out" || fail "no allreduce"
# Its winnowd has a new key each time, which stands in no command line; or the user's own.
bench='"$0" bench --aggregators "$WINNOW_AGGREGATORS" --rank "$RANK" --world "$WORLD_SIZE" --job "$WINNOW_JOB" --size 4K --iters 1'
for _ in 1 2; do
	run 0 -n 1 --bare -- sh -c 'all() { for p in $PPID $(cat "/proc/$PPID/task/$PPID/children"); do tr "\0" " " <"/proc/$p/cmdline"; done; }
		for i in $(seq 200); do all | grep -q "winnowd --listen" && break; sleep 0.05; done; echo "$WINNOW_KEY"; all'
	key=$(head -n 1 "$tmp/run.out")
	[[ $key =~ ^[0-9a-f]{64}$ ]] || fail "the worker's key is '$key'"
	grep -q 'winnowd --listen' "$tmp/run.out" || fail "no winnowd among the children: $(cat "$tmp/run.out")"
	[ "$(grep -c "$key" "$tmp/run.out")" = 1 ] || fail "a command line has the key: $(cat "$tmp/run.out")"
	[ "$key" != "${before:-}" ] || fail "the same key twice"
	before=$key
done
(umask 077 && "$BUILD/winnow" key >"$tmp/key")
for own in WINNOW_KEY=a-key-of-mine WINNOW_KEY_FILE="$tmp/key" WINNOW_INSECURE_NO_KEY=1; do
	env "$own" "$BUILD/winnow" run -n 2 --bare -- sh -c 'env | grep -E "^WINNOW_(KEY|INSECURE)"; '"$bench" "$BUILD/winnow" >"$tmp/run.out" 2>&1 || fail "$own: $(cat "$tmp/run.out")"
	[ "$(grep -c "^$own\$" "$tmp/run.out"),$(grep -cE '^WINNOW_(KEY|INSECURE)' "$tmp/run.out")" = 2,2 ] || fail "$own: $(cat "$tmp/run.out")"
done
# With no key of its own, the worker of a keyed job is refused: so the daemon has the key that it was given.
WINNOW_KEY=a-key-of-mine run 1 -n 1 --bare -- sh -c "unset WINNOW_KEY; WINNOW_INSECURE_NO_KEY=1 exec $bench" "$BUILD/winnow"
grep -q "needs the job's key" "$tmp/run.err" || fail "a worker without the key: $(cat "$tmp/run.err")"
# A file of winnowd's that lets anyone join does not hold here.
printf '[winnowd]\ninsecure-no-key = yes\n' >"$tmp/w.ini"
WINNOW_CONFIG=$tmp/w.ini run 0 -n 2 -- sh -c "$bench" "$BUILD/winnow"
refuses 2 'INSECURE_NO_KEY. contradicts a key: give one of them' env WINNOW_KEY=a-key-of-mine WINNOW_INSECURE_NO_KEY=1 "$BUILD/winnow" run -n 1 -- true
refuses 2 'there is a key, and a key file' env WINNOW_KEY=a-key-of-mine WINNOW_KEY_FILE=/no/such "$BUILD/winnow" run -n 1 -- true
refuses 2 "INSECURE_NO_KEY is 'maybe'" env WINNOW_INSECURE_NO_KEY=maybe "$BUILD/winnow" run -n 1 -- true

# Another user of this machine, who knows the port and the job's name, joins neither the job nor another one.
stranger() { # seconds command..: as nobody, where the program can be reached
	timeout "$1" setpriv --reuid=65534 --regid=65534 --clear-groups "${@:2}"
}
# An endless job, whose workers say where its winnowd is.
loop='echo "$WINNOW_AGGREGATORS $WINNOW_JOB" >"$1.$RANK"; exec "$0" bench --aggregators "$WINNOW_AGGREGATORS" --rank "$RANK" --world "$WORLD_SIZE" --job "$WINNOW_JOB" --size 4K --iters 1000000'
strangers_fail() { # name: of a job that runs, at "$address" as "$job"
	local what
	for what in "bench --aggregators $address --job $job --rank 1 --world 2 --size 4K" "bench --aggregators $address --job other --size 4K"; do
		# shellcheck disable=SC2086 # words
		stranger 20 "$tmp/bin/winnow" $what --insecure-no-key >"$tmp/stranger.log" 2>&1 && fail "$1: nobody may $what"
		grep -q "this aggregator needs the job's key" "$tmp/stranger.log" || fail "$1: $what: $(cat "$tmp/stranger.log")"
	done
}
if [ "$(id -u)" = 0 ]; then
	mkdir "$tmp/bin"
	cp "$BUILD/winnow" "$BUILD"/libwinnow.so* "$tmp/bin/"
	chmod -R a+rX "$tmp/bin" && chmod a+x "$tmp"
	"$BUILD/winnow" run -n 2 -- sh -c "$loop" "$BUILD/winnow" "$tmp/at" >"$tmp/run.out" 2>&1 &
	pids+=($!)
	for rank in 0 1; do await . "$tmp/at.$rank"; done
	read -r address job <"$tmp/at.0"
	strangers_fail "winnow run"
	for file in environ mem; do
		for pid in "${pids[-1]}" $(cat "/proc/${pids[-1]}/task/${pids[-1]}/children"); do
			stranger 5 cat "/proc/$pid/$file" >/dev/null 2>&1 && fail "nobody reads the $file of $pid"
		done
	done
	kill -0 "${pids[-1]}" 2>/dev/null || fail "the job has ended: $(cat "$tmp/run.out")"
	kill -INT "${pids[-1]}"
	wait "${pids[-1]}"

	"$BUILD/winnow" bench --local 2 --size 4K --iters 1000000 >"$tmp/run.out" 2>&1 &
	pids+=($!)
	daemon_listens() {
		read -ra started <"/proc/${pids[-1]}/task/${pids[-1]}/children"
		address=$(for child in "${started[@]}"; do tr '\0' '\n' <"/proc/$child/cmdline" | sed -n '/^--listen$/{n;p}'; done)
		[ -n "$address" ]
	}
	until_so daemon_listens || fail "no winnowd of bench --local"
	wait_port "${address%:*}" "${address##*:}" || fail "winnowd of bench --local does not listen"
	job=bench
	strangers_fail "winnow bench --local"
	kill -0 "${pids[-1]}" 2>/dev/null || fail "the job has ended: $(cat "$tmp/run.out")"
	kill -INT "${pids[-1]}"
	wait "${pids[-1]}"
fi

began=$SECONDS
run 7 -n 3 -- sh -c 'echo $$; [ "$RANK" = 1 ] && exit 7; sleep 300 & echo $!; wait'
[ $((SECONDS - began)) -lt 20 ] || fail "a failure took $((SECONDS - began)) s"
grep -q "worker 1 failed with exit status 7" "$tmp/run.err" || fail "who failed is not said"
run 137 -n 2 -- sh -c 'kill -KILL $$'
run 127 -n 2 -- no-such-command
grep -q "cannot run no-such-command: No such file" "$tmp/run.err" || fail "no reason"
# Deaf to SIGTERM, and with children of its own.
run 3 -n 2 --grace 2s -- sh -c 'trap "" TERM; [ "$RANK" = 0 ] && sleep 0.5 && exit 3; echo $$; sleep 300; sleep 300'
while read -r _ pid; do
	kill -0 "$pid" 2>/dev/null && fail "process $pid is still there"
done <"$tmp/run.out"

# Interrupted: all end, winnowd too.
"$BUILD/winnow" run -n 2 -- sh -c 'echo $$ $PPID; sleep 300' >"$tmp/run.out" 2>"$tmp/run.err" &
pids+=($!)
until [ "$(wc -l <"$tmp/run.out")" = 2 ]; do sleep 0.05; done
launcher=$(awk 'NR == 1 { print $3 }' "$tmp/run.out")
children=$(cat "/proc/$launcher/task/$launcher/children")
[ "$(wc -w <<<"$children")" = 3 ] || fail "children: $children"
kill -INT "$launcher"
got=0
wait "${pids[-1]}" || got=$?
[ $got = 130 ] || fail "interrupted: exit status $got"
for pid in $children; do
	kill -0 "$pid" 2>/dev/null && fail "process $pid is still there"
done

# Ctrl-C is a script's KeyboardInterrupt, and it has time to save what it has. Progress bars show as they come.
"$BUILD/winnow" run -n 2 -- python3 -uc 'import sys, time
try:
    print("\r 10%\r 20%", end="")
    sys.stdout.flush()
    time.sleep(300)
except KeyboardInterrupt:
    time.sleep(1)
    print("\nsaved")' >"$tmp/run.out" 2>&1 &
pids+=($!)
both 10%
kill -INT "${pids[-1]}"
wait "${pids[-1]}" && fail "interrupted: it says that all is well"
[ "$(grep -c saved "$tmp/run.out")" = 2 ] || fail "$(cat "$tmp/run.out")"

# The signals by which people and batch systems end a job or announce that they will: each worker saves what it has.
saving='import os, signal, sys, time
def save(number, frame):
    time.sleep(0.3) # a checkpoint takes a while
    open(sys.argv[1] + "/saved" + os.environ["RANK"], "w").close()
    sys.exit(0)
for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2: signal.signal(number, save)
print("up", flush=True)
time.sleep(60)'
for signal in INT TERM HUP QUIT USR1 USR2; do
	rm -rf "$tmp/checkpoint"
	mkdir "$tmp/checkpoint"
	: >"$tmp/run.out"
	# A job in the background of a shell ignores SIGINT and SIGQUIT, and so would its children.
	python3 -c 'import os, signal, sys
for number in signal.SIGINT, signal.SIGQUIT: signal.signal(number, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$BUILD/winnow" run -n 2 python3 -c "$saving" "$tmp/checkpoint" >"$tmp/run.out" 2>"$tmp/run.err" &
	pids+=($!)
	both up
	kill -"$signal" "${pids[-1]}"
	got=0
	wait "${pids[-1]}" || got=$?
	# The first four end the job; after the last two it ends because all workers have.
	want=0
	case $signal in INT | TERM | HUP | QUIT) want=$((128 + $(kill -l $signal))) ;; esac
	[ $got = $want ] || fail "SIG$signal: exit status $got, want $want: $(cat "$tmp/run.err")"
	[ "$(find "$tmp/checkpoint" -name 'saved*' | wc -l)" = 2 ] || fail "SIG$signal: saved by $(find "$tmp/checkpoint" -name 'saved*' | wc -l) of 2 workers"
done
# A worker that takes such a notice and goes on is left alone; so are the aggregator and the job that it serves.
: >"$tmp/run.out"
"$BUILD/winnow" run -n 2 sh -c 'trap "echo told" USR1; echo up; for i in $(seq 600); do [ ! -e "$0" ] || exit 0; sleep 0.1; done; exit 9' "$tmp/go" >"$tmp/run.out" 2>"$tmp/run.err" &
pids+=($!)
both up
read -ra children <"/proc/${pids[-1]}/task/${pids[-1]}/children"
for pid in "${children[@]}"; do
	[ "$(cat "/proc/$pid/comm")" = winnowd ] || continue
	for signal in USR1 USR2 ALRM; do kill -$signal "$pid"; done
done
kill -USR1 "${pids[-1]}"
both told
: >"$tmp/go"
wait "${pids[-1]}" || fail "after SIGUSR1: exit status $?: $(cat "$tmp/run.err")"

# Nor does a notice cut short what winnowd, told to end, still does for others: only a signal that ends the job does.
mkdir "$tmp/beside"
cp "$BUILD/winnow" "$tmp/beside"
cat >"$tmp/beside/winnowd" <<END
#!/usr/bin/python3
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
open("$tmp/beside/up", "w").close()
for word in 1, 2:
    signal.sigwait({signal.SIGTERM})
    print("told", file=open("$tmp/told", "a"), flush=True)
END
chmod +x "$tmp/beside/winnowd"
: >"$tmp/told"
blocked() { # how often winnow run has begun to wait
	awk '/^voluntary_ctxt_switches/ {print $2}' "/proc/${pids[-1]}/status"
}
LD_LIBRARY_PATH=$BUILD "$tmp/beside/winnow" run -n 1 sh -c 'for i in $(seq 400); do [ ! -e "$0" ] || exit 0; sleep 0.05; done; exit 9' "$tmp/beside/up" >"$tmp/run.out" 2>"$tmp/run.err" &
pids+=($!)
until_so test -s "$tmp/told" || fail "winnowd is not told to end: $(cat "$tmp/run.err")"
before=$(blocked)
kill -USR1 "${pids[-1]}"
has_looked() { [ "$(blocked)" != "$before" ]; }
until_so has_looked || fail "winnow run does not look at SIGUSR1"
[ "$(wc -l <"$tmp/told")" = 1 ] || fail "SIGUSR1 ends what winnowd does for others"
kill -TERM "${pids[-1]}"
wait "${pids[-1]}" || true
[ "$(wc -l <"$tmp/told")" = 2 ] || fail "the second word does not reach winnowd"

# The first word that is no option is the command, as mpirun and torchrun take it; what follows is its own.
for words in "-n 3" -n3 "-np 3" "--np 3" --np=3 "--nproc-per-node 3" --nproc_per_node=3 "--workers=3 --"; do
	# shellcheck disable=SC2086 # several words
	run 0 $words sh -c 'echo "$WORLD_SIZE $*"' sh --help -n 7
	[ "$(sort "$tmp/run.out")" = "[0] 3 --help -n 7
[1] 3 --help -n 7
[2] 3 --help -n 7" ] || fail "winnow run $words: $(cat "$tmp/run.out" "$tmp/run.err")"
done
# A full disk is said, and is no success; the workers go on.
status=0
"$BUILD/winnow" run -n 1 sh -c 'echo lost; echo lost; sleep 0.2; : >"$0"' "$tmp/went-on" >/dev/full 2>"$tmp/run.err" || status=$?
[ $status = 1 ] || fail "output is lost: exit status $status"
[ "$(grep -c 'winnow run: cannot write: No space left on device' "$tmp/run.err")" = 1 ] || fail "output is lost: $(cat "$tmp/run.err")"
[ -e "$tmp/went-on" ] || fail "output is lost: the worker was ended"

run 2 -n 2
run 2 -n 0 -- true
run 2 -n x -- true
run 2 -n -- true
run 2 --what -- true
run 0 --help
