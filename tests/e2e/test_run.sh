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
run 0 -n 3 -- sh -c '"$0" bench --aggregator "$WINNOW_AGGREGATORS" --rank "$RANK" --world "$WORLD_SIZE" \
	--size 100K --iters 3 --check --json' "$BUILD/winnow"
grep -q '"errors": *0' "$tmp/run.out" || fail "no allreduce"
# The winnowd of its own has no key, whatever the environment holds for others.
WINNOW_KEY=a-key-of-others run 0 -n 1 -- sh -c '[ -z "$WINNOW_KEY" ]'

began=$SECONDS
run 7 -n 3 -- sh -c 'echo $$; [ "$RANK" = 1 ] && exit 7; sleep 300 & echo $!; wait'
[ $((SECONDS - began)) -lt 20 ] || fail "a failure took $((SECONDS - began)) s"
grep -q "worker 1 has failed with exit status 7" "$tmp/run.err" || fail "who failed is not said"
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
until [ "$(grep -c '10%' "$tmp/run.out")" = 2 ]; do sleep 0.05; done
kill -INT "${pids[-1]}"
wait "${pids[-1]}" && fail "interrupted: it says that all is well"
[ "$(grep -c saved "$tmp/run.out")" = 2 ] || fail "$(cat "$tmp/run.out")"

run 2 -n 2
run 2 -n 0 -- true
run 2 -n x -- true
run 2 -n -- true
run 2 --what -- true
run 0 --help
