#!/usr/bin/env bash
# Keys in memory: while a job runs where they are needed, after it nowhere; and who may look.
# no-sanitizers: they keep what is freed, and are not part of what they would be loaded into
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" = 0 ] || { echo "it takes root to read winnowd's memory" && exit 77; }
[ -z "${WINNOWD_OPTIONS:-}" ] || { echo "the worker of tests/protocol wants sockets" && exit 77; }
export PYTHONPATH=$PWD/client/python:$PWD/tests/protocol WINNOW_LIBRARY=$PWD/$BUILD/libwinnow.so
umask 077
text=$("$BUILD/winnow" key)
for key in "$text" correct-horse-battery-staple; do
	{
		echo "* $key"
		for i in $(seq 20); do echo "other$i $("$BUILD/winnow" key)"; done # for which memory has to grow
	} >"$tmp/keys"
	winnowd --key-file "$tmp/keys" --threads 2
	/usr/bin/python3 tests/e2e/key_memory.py "$PORT" "$tmp/keys" "$DAEMON" "$tmp/winnowd-$PORT.log" || fail "keys stay in memory"
	winnowd_stop
done

# Of the environment and of the command line: once it is read no text of it is left, nor is it shown.
nowhere() { # key
	/usr/bin/python3 tests/e2e/key_memory.py "$DAEMON" "$1" || fail "the text of $1 stays in winnowd's memory"
	grep -aq "$1" "/proc/$DAEMON/environ" "/proc/$DAEMON/cmdline" && fail "$1 is in environ or cmdline"
}
tiny=(--size 4K --iters 1 --warmup 0)
WINNOW_KEY=$text winnowd --threads 1
WINNOW_KEY=$text bench "${tiny[@]}" >/dev/null || fail "no job with the key of the environment"
nowhere "$text"
winnowd --threads 1 --key "$text"
WINNOW_KEY=$text bench "${tiny[@]}" >/dev/null || fail "no job with the key of the command line"
nowhere "$text"
printf '[winnowd]\nkey = %s\n' "$text" >"$tmp/w.ini"
winnowd --threads 1 --config "$tmp/w.ini"
WINNOW_KEY=$text bench "${tiny[@]}" >/dev/null || fail "no job with the key of the file"
nowhere "$text"

# Who is the same user may not look, and a crash leaves no core file.
mkdir "$tmp/bin" "$tmp/cores"
cp "$BUILD/winnowd" "$tmp/bin/"
chmod -R a+rX "$tmp/bin" && chmod a+x "$tmp" && chmod a+rwx "$tmp/cores"
nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
PORT=$(free_port)
(ulimit -c unlimited && cd "$tmp/cores" && WINNOW_KEY=$text exec setpriv --reuid=65534 --regid=65534 --clear-groups "$tmp/bin/winnowd" --listen "127.0.0.1:$PORT" 2>"$tmp/nobody.log") &
DAEMON=$!
pids+=("$DAEMON")
until_ready "$tmp/nobody.log"
for file in mem environ; do
	nobody head -c 1 "/proc/$DAEMON/$file" >/dev/null 2>&1 && fail "another process of its user reads $file"
done
setpriv --reuid=65534 --regid=65534 --clear-groups sleep 300 &
pids+=($!)
own_is_read() { nobody head -c 1 "/proc/${pids[-1]}/environ" >/dev/null 2>&1; }
soon 5 own_is_read || fail "nobody reads its own processes; the test is blind"
kill -SEGV "$DAEMON"
wait "$DAEMON" 2>/dev/null
status=$?
[ "$status" = 139 ] || fail "it ended with status $status, not by SIGSEGV without a core"
[ -z "$(ls "$tmp/cores")" ] || fail "a core file: $(ls "$tmp/cores")"
grep -qx 'LimitCORE=0' docker/systemd/winnowd.service || fail "the unit allows core files"
echo "no key stays"
