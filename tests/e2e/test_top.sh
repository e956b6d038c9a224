#!/usr/bin/env bash
# winnow top as a user sees it, in tmux: rates, a narrow window, the terminal as it was afterwards; and in a pipe.
. "$(dirname "$0")/lib.sh"
command -v tmux >/dev/null || {
	echo "no tmux"
	exit 77
}
w=$BUILD/winnow
m=127.0.0.1:$(free_port)
winnowd --insecure-no-key --metrics "$m"
for rank in 0 1; do start going$rank bench --insecure-no-key --job going --rank $rank --world 2 --size 1M --iters 1000000; done

terminal=(tmux -L "winnow-top-$$" -f /dev/null)
trap '"${terminal[@]}" kill-server 2>/dev/null; stop_all || exit 1' EXIT
env -u TMUX "${terminal[@]}" new-session -d -x 150 -y 20 "sh" || fail "tmux does not start"
type_in() { "${terminal[@]}" send-keys "$@"; }
screen() { "${terminal[@]}" capture-pane -p; }
until_screen() { # seconds pattern
	local i
	for i in $(seq $(($1 * 10))); do
		screen >"$tmp/screen.log"
		grep -qE -- "$2" "$tmp/screen.log" && return 0
		sleep 0.1
	done
	fail "the screen does not show /$2/"
}
run_top() { # arg..
	type_in "clear; echo was-here; $w top $m $*; echo ended \$?; stty -a | grep -oE '[^ ]icanon|[^ ]echo |icanon'" Enter
	until_screen 10 '^going +running +2/2 +[1-9]'
}
back_again() { # the exit status: the shell's screen is there, with its cursor and echo
	until_screen 5 "^ended $1"
	until_screen 5 '^ *icanon'
	grep -q '^was-here' "$tmp/screen.log" || fail "the screen is not as it was"
	! grep -qE '^going|-icanon|-echo' "$tmp/screen.log" || fail "the terminal is not as it was"
	[ "$("${terminal[@]}" display-message -p '#{cursor_flag}#{alternate_on}#{wrap_flag}')" = 101 ] || fail "cursor, screen or wrapping are not as they were"
}

run_top
grep -qE '^JOB +STATE +WORKERS +OPS/S +IN B/S +OUT B/S +PKTS/S +WAITS +SLOTS +D +U +LOSS +RTT +HELD +PATH +OPERATION$' "$tmp/screen.log" || fail "the head of the table"
[ "$("${terminal[@]}" display-message -p '#{cursor_flag}#{alternate_on}')" = 01 ] || fail "no screen of its own, or a cursor on it"
first=$(head -n 1 "$tmp/screen.log")
for _ in $(seq 100); do
	[ "$(screen | head -n 1)" = "$first" ] || break
	sleep 0.1
done
[ "$(screen | head -n 1)" != "$first" ] || fail "the screen stands still"
# Narrower: columns go, lines are cut, and nothing wraps.
"${terminal[@]}" resize-window -x 50 -y 8
until_screen 5 '^JOB +STATE +WORKERS +OPS/S +IN B/S +OUT B/S >$'
[ "$(grep -c '^going' "$tmp/screen.log")" = 1 ] || fail "not one row"
"${terminal[@]}" resize-window -x 10 -y 3
sleep 0.5
"${terminal[@]}" resize-window -x 150 -y 20
until_screen 5 'OPERATION$'
type_in q
back_again 0
run_top
type_in C-c
back_again 0
# Stopped and taken up again.
run_top --interval 200ms
type_in C-z
until_screen 5 '[Ss]topped'
grep -q '^was-here' "$tmp/screen.log" || fail "stopped, the screen is not the shell's"
type_in fg Enter
until_screen 5 '^going +running'
type_in q
until_screen 5 '^[#$] *$'
# An aggregator that goes: said, and top goes on.
run_top --interval 200ms
kill -KILL "$DAEMON"
until_screen 5 'unreachable: cannot connect'
type_in q
back_again 0

# In a pipe: lines, no escapes, an end after --count.
winnowd --insecure-no-key --metrics "$m"
start again bench --insecure-no-key --job again --size 1M --iters 1000000
for _ in $(seq 50); do
	"$w" status "$m" | seen '^again' && break
	sleep 0.1
done
"$w" top "$m" --count 3 --interval 300ms >"$tmp/top.out" </dev/null || fail "top in a pipe ends with $?"
[ "$(grep -cE '^[0-9:]{8}  again +running' "$tmp/top.out")$(grep -c '^TIME' "$tmp/top.out")" = 31 ] || fail "top in a pipe: $(cat "$tmp/top.out")"
[ "$(grep -cE '^[0-9:]{8}  again +running +1/1 +[1-9]' "$tmp/top.out")" = 2 ] || fail "no rates: $(cat "$tmp/top.out")"
! grep -q $'\033' "$tmp/top.out" || fail "escapes in a pipe"
start=$SECONDS
"$w" top "$m" --interval 100ms 2>"$tmp/top.err" | head -n 1 >/dev/null
[ $((SECONDS - start)) -le 5 ] || fail "top goes on when nobody reads"
[ ! -s "$tmp/top.err" ] || fail "top complains when nobody reads: $(cat "$tmp/top.err")"
status=0
"$w" top 127.0.0.1:1 --count 1 >"$tmp/top.out" || status=$?
[ $status = 2 ] || fail "top of nobody ends with $status"
grep -q 'unreachable' "$tmp/top.out" || fail "top of nobody: $(cat "$tmp/top.out")"
refuses 2 "interval is 1ms: want 0.1s" "$w" top --interval 1ms
echo "top begins, changes and ends well"
