#!/usr/bin/env bash
# Workers and an aggregator that the network cuts off, and that come back: the others continue, those who were cut off find out and return, no result mixes two memberships.
# no-sanitizers: Debian's python is not built with them
# waits: for silence times
. "$(dirname "$0")/lib.sh"
. tests/e2e/python.sh
need_modules numpy
need_namespaces
hosts_up 5 2 1500
winnowd_inside 0 --insecure-no-key --threads 1
winnowd_inside 1 --insecure-no-key --threads 1
export WINNOW_AGGREGATORS=10.77.0.101:5555,10.77.0.102:5555 WINNOW_INSECURE_NO_KEY=yes WINNOW_JOB=parted WINNOW_SILENCE=1s WINNOW_JOIN_TIMEOUT=4s
export WORKERS=5 STOP=$tmp/stop PYTHONPATH=client/python
for i in 0 1 2 3 4; do start "w$i" inside "w$i" "$python" tests/e2e/partition.py "$i"; done

is_so() { # what it is about, seconds, worker, "world rank members": its last word of members
	said_last() { grep -F ' members ' "$tmp/w$1.out" | tail -n 1 | seen -E " members $2\$"; }
	soon "$2" said_last "$3" "$4" || fail "$1: worker $3 does not say 'members $4': $(tail -n 5 "$tmp/w$3.out") $(cat "$tmp/w$3.err")"
}
more_members() { [ "$(grep -c " members " "$tmp/w1.out")" -gt "$before" ]; }
cut_off() { for host; do ip -n "$net-sw" link set "$net-$host" down; done; }
back() { for host; do ip -n "$net-sw" link set "$net-$host" up; done; }

all="0 1 2 3 4"
for i in $all; do is_so "start" 20 "$i" "5 $i $all"; done

# Two of five: three are left, and the two are back under their own ranks.
cut_off w3 w4
for i in 0 1 2; do is_so "two are cut off" 10 "$i" "3 $i 0 1 2"; done
back w3 w4
for i in $all; do is_so "the two are back" 20 "$i" "5 $i $all"; done
seen ' expelled ' "$tmp/w3.out" || fail "worker 3 has not found out"

# The second aggregator, and a worker with it: the others continue without both.
cut_off a1 w0
for i in 1 2 3 4; do is_so "an aggregator and a worker are cut off" 15 "$i" "4 $((i - 1)) 1 2 3 4"; done
back a1 w0
for i in $all; do is_so "they are back" 30 "$i" "5 [0-4] $all"; done

# The first one, which decides: nobody continues without it, and all do with it.
before=$(grep -c ' members ' "$tmp/w1.out")
cut_off a0
await ' ended .*10.77.0.101:5555 is lost: silent' "$tmp/w1.out"
[ "$(grep -c ' members ' "$tmp/w1.out")" = "$before" ] || fail "worker 1 has a result without the first aggregator"
back a0
for i in $all; do is_so "the first aggregator is back" 30 "$i" "5 [0-4] $all"; done
soon 10 more_members || fail "worker 1 has no result since the first aggregator is back"

# One that stands still for longer than the silence time.
kill -STOP "$(pid_of w2)"
for i in 0 1 3 4; do is_so "one stands still" 10 "$i" "4 [0-3] 0 1 3 4"; done
kill -CONT "$(pid_of w2)"
for i in $all; do is_so "it goes on" 20 "$i" "5 [0-4] $all"; done

touch "$STOP"
for i in $all; do expect "w$i" 10 0; done
echo "four partitions: all continued, all came back, and no result had members of two"
