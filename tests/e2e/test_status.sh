#!/usr/bin/env bash
# winnow status as people and probes use it: healthy, a frozen worker, a job that waits, drain, several aggregators,
# nobody there; and the commands that show options.
# shellcheck disable=SC1091,SC2034,SC2154 # lib.sh sets them, or reads them
. "$(dirname "$0")/lib.sh"
w=$BUILD/winnow
status() { # wanted exit status, pattern of its output, arg..
	local want=$1 pattern=$2 got=0
	shift 2
	"$w" status "$@" >"$tmp/status.out" 2>"$tmp/status.err" || got=$?
	[ "$got" = "$want" ] || fail "status $*: exit status $got, want $want: $(cat "$tmp/status.out" "$tmp/status.err")"
	[ -z "$pattern" ] || grep -qE -- "$pattern" "$tmp/status.out" || fail "status $*: no /$pattern/ in: $(cat "$tmp/status.out")"
}
value() { # expression of `v`, the JSON object that status printed
	python3 -c 'import json, sys; v = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$tmp/status.out" "$1"
}
is() { # expression: true of what status printed
	[ "$(value "$1")" = True ] || fail "not so: $1 in $(cat "$tmp/status.out")"
}
until_status() { # wanted exit status, seconds, pattern, arg..
	local want=$1 limit=$2 pattern=$3 got i
	shift 3
	for i in $(seq $((limit * 10))); do
		got=0
		"$w" status "$@" >"$tmp/status.out" 2>&1 || got=$?
		[ "$got" = "$want" ] && grep -qE "$pattern" "$tmp/status.out" && return 0
		sleep 0.1
	done
	fail "status $*: exit status $got, want $want and /$pattern/ within $limit s: $(cat "$tmp/status.out")"
}

m1=127.0.0.1:$(free_port) m2=127.0.0.1:$(free_port)
winnowd --insecure-no-key --metrics "$m1"
first=$DAEMON one=127.0.0.1:$PORT
winnowd --insecure-no-key --metrics "$m2"
second=$DAEMON

# No jobs.
status 0 "^$m1: healthy; winnowd .* 0 jobs" "$m1"
status 0 "" "$m1" "$m2" --quiet
[ ! -s "$tmp/status.out" ] || fail "--quiet has said something: $(cat "$tmp/status.out")"

# Whose it is: said to others, and by JSON; nothing is known of what is not here.
status 0 "" "$m1"
! grep -q 'belongs to user' "$tmp/status.out" || fail "one's own is another's: $(cat "$tmp/status.out")"
status 0 "" "$m1" --json
is 'v["aggregators"][0]["user"] == "'"$(id -un)"'"'
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	mkdir "$tmp/bin"
	cp "$BUILD/winnow" "$BUILD"/libwinnow.so* "$tmp/bin/"
	chmod -R a+rX "$tmp"
	setpriv --reuid=65534 --regid=65534 --clear-groups "$tmp/bin/winnow" status "$m1" >"$tmp/status.out" || fail "status as nobody"
	grep -q "^  it belongs to user root; to ask another one: winnow status HOST:PORT" "$tmp/status.out" || fail "whose it is: $(cat "$tmp/status.out")"
fi

# A job that runs, by ranks whose pids are known.
for rank in 0 1 2; do
	"$w" bench --aggregators "$one" --insecure-no-key --job frozen --rank $rank --world 3 --size 1M --iters 1000000 \
		--silence 8 >/dev/null 2>"$tmp/frozen$rank.err" &
	pids+=($!)
	last=$!
done
until_status 0 20 'frozen +running +3/3' "$m1"
for _ in $(seq 50); do # until it has done something
	status 0 "" "$m1" --json
	[ "$(value 'v["aggregators"][0]["report"]["jobs"][0]["operations"] > 0')" = False ] || break
	sleep 0.1
done
is 'v["status"] == "healthy" and len(v["aggregators"]) == 1 and v["aggregators"][0]["problems"] == []'
is 'v["aggregators"][0]["address"] == "'"$m1"'" and v["aggregators"][0]["report"]["jobs"][0]["name"] == "frozen"'
is '0.05 < v["aggregators"][0]["report"]["jobs"][0]["density"] < v["aggregators"][0]["report"]["jobs"][0]["union"] < 0.6'
is 'v["aggregators"][0]["report"]["jobs"][0]["operations"] > 0'
is '[w["state"] for w in v["aggregators"][0]["report"]["jobs"][0]["workers"]] == ["ready"] * 3'
status 0 'frozen +2 +ready' "$m1" --workers
# What workers see of their paths, once they have said it twice: a quarter of 8 s apart.
for _ in $(seq 80); do
	status 0 "" "$m1" --json
	[ "$(value 'all(w["lately"] for w in v["aggregators"][0]["report"]["jobs"][0]["workers"])')" = False ] || break
	sleep 0.1
done
is 'all(0 < w["rtt_least_s"] <= w["rtt_s"] < 1 and w["window"] >= 2 for w in v["aggregators"][0]["report"]["jobs"][0]["workers"])'
is 'all(0 < w["out"] and 0 < w["in"] and w["out_marked"] == 0 for w in v["aggregators"][0]["report"]["jobs"][0]["workers"])'
is 'all(1.5 < w["lately"]["over_s"] < 4 for w in v["aggregators"][0]["report"]["jobs"][0]["workers"])'
is 'all(0 <= w["lately"]["held_window"] + w["lately"]["held_credit"] < 1.1 for w in v["aggregators"][0]["report"]["jobs"][0]["workers"])'
is 'sum(w["last_s"] for w in v["aggregators"][0]["report"]["jobs"][0]["workers"]) > 0'
status 0 'RTT +LEAST +WINDOW +LOST +MARKED +HELD +LAST +SAYS' "$m1" --workers
# As the environment of a container says it, with winnowd's own variable.
WINNOW_METRICS=$m1 status 0 'frozen' || fail "WINNOW_METRICS"
WINNOW_METRICS=0.0.0.0:${m1#*:} status 0 'frozen' || fail "0.0.0.0"

# One worker freezes: the others wait for it, and it is named.
kill -STOP "$last"
until_status 1 5 'job frozen: others have waited .* for rank 2' "$m1" --late 1
grep -qE '^frozen .* [0-9.]+s for 2 ' "$tmp/status.out" || fail "the table does not show who is waited for: $(cat "$tmp/status.out")"
status 0 'degraded' "$m1" --late 1 --alive
status 1 "^$m1: degraded" "$m1" "$m2" --late 1 --quiet
! grep -q "$m2" "$tmp/status.out" || fail "--quiet names what is healthy"
status 1 "" "$m1" "$m2" --late 1 --json
is 'v["status"] == "degraded" and [a["status"] for a in v["aggregators"]] == ["degraded", "healthy"]'
is 'v["aggregators"][0]["problems"][0]["code"] == "straggler" and v["aggregators"][0]["problems"][0]["job"] == "frozen"'
is 'v["aggregators"][0]["report"]["jobs"][0]["waiting"]["ranks"] == [2]'
# Unreachable is the worst of all.
status 2 "127.0.0.1:1: unreachable: cannot connect" "$m1" 127.0.0.1:1,"$m2" --late 1
status 2 "" 127.0.0.1:1 --json
is 'v["status"] == "unreachable" and "cannot connect" in v["aggregators"][0]["why"]'
# Half of its silence is over: it will be lost soon. Then it is, and the job is gone, which is said.
until_status 1 8 'nothing was heard for .* from rank 2.*after 8.0s' "$m1" --late 60m
until_status 0 10 'last failure, .* job frozen: rank 2 .* is lost' "$m1"
kill -KILL "$last"

# A site says whose it is, and waits for its parent alone; workers that are elsewhere are no problem of its own.
m3=127.0.0.1:$(free_port)
winnowd --insecure-no-key --metrics "$m3" --parent "$one" --site rack1
site=$DAEMON
racks() { # rank, aggregator
	"$w" bench --aggregators "$2" --insecure-no-key --job racks --rank "$1" --world 2 --size 1M --iters 1000000 >/dev/null 2>"$tmp/racks$1.err" &
	pids+=($!)
	last=$!
}
racks 0 "127.0.0.1:$PORT"
first_rank=$last
until_status 1 10 'job racks: forming for .*: its parent waits for other workers' "$m3" --late 500ms
until_status 1 10 'job racks: forming for .*: waits for rank 1$' "$m1" --late 500ms
racks 1 "$one"
until_status 0 20 'racks +running +1/1 ' "$m3"
until_status 0 20 'racks +running +2/2 ' "$m1"
status 0 "^$m3: healthy; winnowd .*, site rack1 of $one, up " "$m3" --workers
grep -qE '^racks +1 +elsewhere +- +- +- +- ' "$tmp/status.out" || fail "a worker elsewhere: $(cat "$tmp/status.out")"
status 0 'RANK +STATE +HOST +SITE +ADDRESS' "$m1" --workers
grep -qE '^racks +0 +ready +[^ ]+ +rack1 +127' "$tmp/status.out" || fail "a worker of a site: $(cat "$tmp/status.out")"
grep -qE '^racks +1 +ready +[^ ]+ +- +127' "$tmp/status.out" || fail "a worker without a site: $(cat "$tmp/status.out")"
status 0 "" "$m1" "$m3" --json
is '[w.get("site") for w in v["aggregators"][0]["report"]["jobs"][0]["workers"]] == ["rack1", None]'
is '[w.get("site") for w in v["aggregators"][1]["report"]["jobs"][0]["workers"]] == [None, None]'
is '[[a["report"].get(name) for name in ("site", "parent")] for a in v["aggregators"]] == [[None, None], ["rack1", "'"$one"'"]]'
# The site speaks to its parent in this worker's name, and says with each heartbeat how its way is.
heard='[0 < w["rtt_least_s"] <= w["rtt_s"] for w in json.load(sys.stdin)["aggregators"][0]["report"]["jobs"][0]["workers"][:1]] == [True]'
for ((look = 0; ; look++)); do
	"$w" status "$m1" --json | python3 -c "import json, sys; sys.exit(not ($heard))" && break
	[ "$look" -lt 50 ] || fail "a site's round trips: $("$w" status "$m1" --json)"
	sleep 0.2
done
# The alert for a job that lacks workers compares these two.
python3 -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())' "http://$m3/metrics" >"$tmp/metrics"
[ "$(grep -E '^winnow_job_(workers|members)' "$tmp/metrics")" = $'winnow_job_workers{job="racks"} 1\nwinnow_job_members{job="racks"} 1' ] ||
	fail "a site's metrics: $(grep racks "$tmp/metrics")"
! grep -q 'rank="1"' "$tmp/metrics" || fail "a site's metrics of a worker elsewhere: $(grep 'rank="1"' "$tmp/metrics")"
kill -KILL "$first_rank" "$last"
until_status 0 20 '0 jobs' "$m3"
DAEMON=$site
winnowd_stop

# A job whose workers do not all come.
start lonely "$w" bench --aggregators "$one" --insecure-no-key --job lonely --rank 1 --world 3 --join-timeout 30
until_status 1 10 'job lonely: forming for .*: waits for rank 0, 2' "$m1" --late 500ms
status 0 'lonely +forming +1/3' "$m1" --late 20

# Again and again: a line with the time between two looks, and what changes is seen; no escapes but on a terminal.
"$w" status "$m2" --watch 100ms >"$tmp/watch.out" 2>&1 &
watcher=$!
pids+=("$watcher")
await "healthy(.|$)" "$tmp/watch.out"
PYTHONDONTWRITEBYTECODE=1 python3 - "$w" "$m2" <<'END' || fail "--watch on a terminal"
import os, signal, subprocess, sys
signal.alarm(20)
ours, its = os.openpty()
program = subprocess.Popen([sys.argv[1], "status", "--watch", sys.argv[2]], stdout=its)
seen = b""
while seen.count(b": healthy") < 3 or not seen.endswith(b"\n"):  # the first, and two that are cleared for; in pieces
    seen += os.read(ours, 4096)
program.kill()
assert seen.count(b"\033") == 2 * seen.count(b"\033[H\033[2J") >= 4, seen
END
timeout 20 "$w" status "$m2" --watch 100ms --json 2>"$tmp/watch.err" | head -n 1 >/dev/null
[ "${PIPESTATUS[0]}" = 0 ] || fail "--watch goes on, or fails, when nobody reads"
[ ! -s "$tmp/watch.err" ] || fail "--watch complains when nobody reads: $(cat "$tmp/watch.err")"
refuses 2 'watch is 1ms: want 0.1s to 3600s' "$w" status --watch 1ms

# Drain.
kill -TERM "$first"
until_status 1 5 'it is draining and takes no new jobs' "$m1" --late 20
kill -TERM "$second"
wait "$second" || fail "winnowd ended with status $?"
status 2 "$m2: unreachable" "$m2"
await unreachable "$tmp/watch.out"
kill -TERM "$watcher"
[ "$(grep -cE '^[0-9]{4}(-[0-9]{2}){2} [0-9]{2}(:[0-9]{2}){2}$' "$tmp/watch.out")" -ge 2 ] || fail "no times between looks: $(cat "$tmp/watch.out")"
! grep -q $'\033' "$tmp/watch.out" || fail "escapes in a file"

# Frozen itself: it takes the connection, and says nothing.
kill -STOP "$first"
start=$SECONDS
status 2 'unreachable: no answer' "$m1" --within 500ms
[ $((SECONDS - start)) -le 3 ] || fail "--within 500ms took $((SECONDS - start)) s"
kill -CONT "$first"

# Wrong usage is 2, too, and one line.
refuses 2 "'x:' is not HOST or HOST:PORT" "$w" status x:
refuses 2 'no option --jsn; did you mean --json' "$w" status --jsn
refuses 2 "late is 'soon'" "$w" status --late soon
"$w" status --help | seen 'Exit status: 0 healthy, 1 degraded, 2 unreachable' || fail "status --help"

# Options and where they are from; tests/unit/test_options.c has the rest.
# What the environment says to other commands, and to workers.
WINNOW_WORKERS=4 WINNOW_SIZE=1M,2M WINNOW_DENSITY=1,0.1 WINNOW_RANK=3 "$w" config dump >"$tmp/dump" || fail "config dump in the environment of others"
printf '[winnowd]\njobs-max = 3\n' >"$tmp/w.ini"
WINNOW_KEY=do-not-show-me "$w" config dump winnowd --config "$tmp/w.ini" --threads 2 >"$tmp/dump" || fail "config dump winnowd"
grep -qE "^jobs-max = 3 +; $tmp/w.ini$" "$tmp/dump" || fail "config dump winnowd: $(cat "$tmp/dump")"
grep -qE '^threads = 2 +; command line$' "$tmp/dump" || fail "config dump winnowd: $(cat "$tmp/dump")"
! grep -q do-not-show-me "$tmp/dump" || fail "a key is shown"
refuses 2 "no command 'nothing' that has options" "$w" config dump nothing
refuses 2 'only .winnow config dump. exists' "$w" config
echo "all states"
