#!/usr/bin/env bash
# winnow colocate: the same command on every host makes a job with an aggregator on each; how it ends, and what is wrong usage.
# shellcheck disable=SC2016 # what is in single quotes is for the workers' shell
. "$(dirname "$0")/lib.sh"
w=$BUILD/winnow
export WINNOW_INSECURE_NO_KEY=1 WINNOW_METRICS=no
refuses 2 'hosts is missing' "$w" colocate -- true
refuses 2 'the command to run is missing' "$w" colocate --hosts 127.0.0.1
refuses 2 'the command to run is missing' "$w" colocate --hosts 127.0.0.1 --
refuses 2 "want at most 256 names" "$w" colocate --hosts 127.0.0.1,,127.0.0.2 -- true
refuses 2 "cannot find host 'fe80::1%no-such-device'" "$w" colocate --hosts fe80::1%no-such-device -- true
refuses 2 'several addresses of --hosts .* are this host' "$w" colocate --hosts 127.0.0.1,127.0.0.2 -- true
refuses 2 'no address of --hosts 192.0.2.1 is this host' "$w" colocate --hosts 192.0.2.1 -- true
refuses 2 'index is not below' "$w" colocate --hosts 127.0.0.1 --index 1 true
refuses 2 "no option --host; did you mean --hosts" "$w" colocate --host a -- true
"$w" colocate --help | seen 'Run this on every host' || fail "run --help"

# What a worker is told.
port=$(free_port)
MASTER_PORT=1234 "$w" colocate --hosts 127.0.0.1,127.0.0.2 --index 1 --per-host 2 --port "$port" -- \
	sh -c 'echo "$WINNOW_AGGREGATORS $RANK $LOCAL_RANK $GROUP_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT $1" >>'"$tmp/told" sh 'an argument' 2>"$tmp/run.err" || fail "run: $(cat "$tmp/run.err")"
list=127.0.0.1:$port,127.0.0.2:$port
[ "$(sort "$tmp/told")" = "$list 2 0 1 4 2 127.0.0.1 1234 an argument
$list 3 1 1 4 2 127.0.0.1 1234 an argument" ] || fail "workers are told: $(cat "$tmp/told")"

# A job of three hosts, two workers on each: every result is checked, and all of it ends.
job() { # name of the command's log, arg of bench..
	port=$(free_port)
	local i
	for i in 0 1 2; do
		start "host$i" "$w" colocate --hosts 127.0.0.1,127.0.0.2,127.0.0.3 --index $i --per-host 2 --port "$port" -- \
			sh -c 'exec "$0" bench --aggregators "$WINNOW_AGGREGATORS" --rank "$RANK" --world "$WORLD_SIZE" "$@"' "$w" "$@"
	done
}
left() { # nothing listens any more
	sleep 0.2
	! (exec 3<>"/dev/tcp/127.0.0.$1/$port") 2>/dev/null || fail "an aggregator is left on host $1"
}
job --check --size 3M --iters 3
for i in 0 1 2; do expect host$i 60 0; done
for i in 1 2 3; do left $i; done
# A worker that fails ends its host's others, and is the exit status; other hosts hear of it.
start failing "$w" colocate --hosts 127.0.0.1 --per-host 2 --port "$(free_port)" -- sh -c '[ "$RANK" = 0 ] && exec sleep 60; exit 7'
finish failing 10
[ $? = 7 ] || fail "exit status of a worker that fails"
job --size 3M --iters 1000000
sleep 1.5
for i in 0 1 2; do [ ! -e "$tmp/host$i.status" ] || fail "host $i has ended: $(cat "$tmp/host$i.err")"; done
kill -TERM "$(pgrep -f -- "--index 1 .*--port $port" | head -n 1)"
finish host1 20
[ $? = 143 ] || fail "exit status after SIGTERM"
for i in 0 2; do
	finish host$i 20
	[ $? = 1 ] || fail "host $i: exit status"
	grep -q 'aggregator 127.0.0.2:.* is lost\|rank [23] .*' "$tmp/host$i.err" || fail "host $i says: $(cat "$tmp/host$i.err")"
done
for i in 1 2 3; do left $i; done
# An aggregator that cannot start is said, and is the end.
winnowd
# shellcheck disable=SC2153 # winnowd sets it
start taken "$w" colocate --hosts 127.0.0.1 --port "$PORT" -- sleep 60
finish taken 20
[ $? = 1 ] || fail "exit status when the port is taken"
grep -q "this host's winnowd ended with status 1" "$tmp/taken.err" || fail "a port that is taken: $(cat "$tmp/taken.err")"
echo "all right"
