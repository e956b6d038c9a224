#!/usr/bin/env bash
# winnowd under a service manager: READY, RELOADING, STOPPING and the watchdog's datagrams, which stop when a data thread
# hangs; SIGHUP reads the key file again, and what is wrong with it changes nothing; the unit's hardening by systemd's own count.
# release: it needs images, packages or a booted system
# waits: for what comes at intervals
. "$(dirname "$0")/lib.sh"

manager() { # socket: listens there; what it hears is in $tmp/heard
	rm -f "$tmp/heard"
	python3 tests/e2e/notify.py "$1" "$tmp/heard" &
	pids+=($!)
	until [ -s "$tmp/heard" ]; do sleep 0.05; done
}
hears() { # pattern, seconds
	soon "$2" grep -qE "$1" "$tmp/heard" || fail "the manager does not hear /$1/ but: $(cat "$tmp/heard")"
}
logs() { await "$1" "$tmp/winnowd-$PORT.log"; } # pattern
dogs() { grep -c 'WATCHDOG=1' "$tmp/heard"; }

# ---- the manager's protocol, on a path and on an abstract socket ----
for socket in "$tmp/notify" "@winnow-test-$$"; do
	manager "$socket"
	export NOTIFY_SOCKET=$socket WATCHDOG_USEC=400000
	winnowd --insecure-no-key
	hears 'READY=1 STATUS=listening on 127.0.0.1' 5
	sleep 2
	count=$(dogs)
	if [ "$count" -lt 6 ] || [ "$count" -gt 12 ]; then fail "want a WATCHDOG=1 each 0.2 s, got $count in 2 s"; fi
	kill -HUP "$DAEMON"
	hears 'RELOADING=1 MONOTONIC_USEC=[0-9]+' 5
	hears '^[0-9.]+ READY=1$' 5
	logs 'event=reloaded text="there is no key file'
	winnowd_stop
	hears 'STOPPING=1 STATUS=draining: 0 jobs' 5
done
# A data thread that hangs is not alive, though the control thread is.
manager "$tmp/hang"
export NOTIFY_SOCKET=$tmp/hang
winnowd --insecure-no-key --threads 1
hears READY 5
hung=
for task in "/proc/$DAEMON/task/"*; do [ "$(cat "$task/comm")" = winnow-data ] && hung=${task##*/}; done
[ -n "$hung" ] || fail "no data thread"
python3 tests/e2e/hang.py "$hung" &
pids+=($!)
soon 10 grep -q '^State:[[:space:]]*t' "/proc/$hung/status" || fail "the data thread does not stop"
sleep 1
before=$(dogs)
sleep 1.5
[ "$(dogs)" -le $((before + 1)) ] || fail "the manager hears WATCHDOG=1 though a data thread hangs"
kill -KILL "$DAEMON" "${pids[-1]}"
# Watched by somebody else, not watched, no such socket: all fine.
WATCHDOG_PID=1 winnowd --insecure-no-key
WATCHDOG_USEC=soon winnowd --insecure-no-key
NOTIFY_SOCKET=/nowhere/at/all winnowd --insecure-no-key
NOTIFY_SOCKET=nonsense winnowd --insecure-no-key
kill -0 "$DAEMON" || fail "winnowd minds a NOTIFY_SOCKET that is none"
unset NOTIFY_SOCKET WATCHDOG_USEC

# ---- keys, read again ----
echo '* the-first-key' >"$tmp/keys"
chmod 644 "$tmp/keys"
winnowd --key-file "$tmp/keys"
join() { # name key rank world
	WINNOW_KEY=$2 start "$1" bench --job "$1" --rank "$3" --world "$4" --size 64K --iters 2 --check
}
join one the-first-key 0 1
expect one 10 0
# One worker of a job comes before, the other after: the keys of a job's datagrams are made of one key.
WINNOW_KEY=the-first-key start early bench --job both --rank 0 --world 2 --size 64K --iters 2 --check
sleep 0.5
printf 'both the-second-key\nother another-key\n' >"$tmp/keys"
kill -HUP "$DAEMON"
logs "event=reloaded key_file=$tmp/keys keys=2"
WINNOW_KEY=the-second-key start late bench --job both --rank 1 --world 2 --size 64K --iters 2 --check
expect late 10 1 "job 'both' was opened with another key: the aggregator's keys have changed meanwhile"
kill -KILL -- "-${leader[early]}"
sleep 0.5
join both the-second-key 0 1
expect both 10 0
join one the-first-key 0 1
expect one 10 1 "wrong key for job 'one'"
# Each time that it is read winnowd says whether all may read it.
exposed() { grep -c "level=warn event=keys_exposed key_file=$tmp/keys .*chmod o-r $tmp/keys" "$tmp/winnowd-$PORT.log"; }
[ "$(exposed)" = 2 ] || fail "keys_exposed: said $(exposed) times at the start and a reload"
chmod 640 "$tmp/keys"
kill -HUP "$DAEMON"
soon 5 has_lines 2 event=reloaded "$tmp/winnowd-$PORT.log" || fail "the keys are not read again"
# A file that is wrong, or gone, changes nothing.
echo 'a b c d' >"$tmp/keys"
kill -HUP "$DAEMON"
logs 'event=reload_failed text="key file .*, line 1: .*; the old keys stay"'
rm "$tmp/keys"
kill -HUP "$DAEMON"
logs 'event=reload_failed text="cannot read key file'
mkfifo "$tmp/keys" # for which winnowd must not wait
kill -HUP "$DAEMON"
logs 'event=reload_failed text="cannot read key file .*: it is a pipe'
rm "$tmp/keys"
join other another-key 0 1
expect other 10 0
[ "$(exposed)" = 2 ] || fail "keys_exposed: said $(exposed) times, of a file of mode 640 as well"

# ---- the unit ----
sed "s|/usr/bin/winnowd|$PWD/$BUILD/winnowd|" docker/systemd/winnowd.service >"$tmp/winnowd.service"
# What systemd says of other units is not about ours.
systemd-analyze verify --man=no "$tmp/winnowd.service" 2>&1 | grep "winnowd.service" >"$tmp/verify"
[ ! -s "$tmp/verify" ] || fail "systemd finds fault: $(cat "$tmp/verify")"
systemd-analyze security --offline=yes --threshold=15 "$tmp/winnowd.service" >"$tmp/score" || fail "the unit is too open: $(tail -n 1 "$tmp/score")"
tail -n 1 "$tmp/score"
# Nobody runs systemd here: its filter of system calls is compared with what winnowd calls, a job, a reload and the end included.
[ -z "${SAN:-}" ] || exit 0
echo '* the-first-key' >"$tmp/keys"
INSIDE="strace -f -qq -o $tmp/calls" NOTIFY_SOCKET=$tmp/nobody winnowd --key-file "$tmp/keys" --metrics "127.0.0.1:$(free_port)"
join traced the-first-key 0 1
expect traced 20 0
pid=$(pgrep -P "$DAEMON")
kill -HUP "$pid"
logs event=reloaded
kill -TERM "$pid"
wait "$DAEMON"
python3 tests/e2e/unit_syscalls.py docker/systemd/winnowd.service "$tmp/calls" || fail "the unit's SystemCallFilter"
