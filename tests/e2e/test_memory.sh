#!/usr/bin/env bash
# A container's memory limit: winnowd finds it, says so, and refuses the jobs that it has no memory for. It is not killed.
# no-sanitizers: their memory is many times ours
. "$(dirname "$0")/lib.sh"
limit=$((28 << 20))
group=
group_up() { # below the group that we are in, or below the top
	local top path
	for top in /sys/fs/cgroup/memory /sys/fs/cgroup; do
		for path in "$(sed -n 's/^[0-9]*:\(.*,\)\?memory\(,.*\)\?://p; s/^0:://p' /proc/self/cgroup | head -n 1)" ""; do
			group=$top$path/winnow-test-$$
			mkdir "$group" 2>/dev/null || continue
			for file in memory.limit_in_bytes memory.max; do
				[ -e "$group/$file" ] && echo $limit >"$group/$file" && return 0
			done
			rmdir "$group"
		done
	done 2>/dev/null
	return 1
}
group_up || {
	echo "cannot make a cgroup with a memory limit: not root, or a machine without"
	exit 77
}
leave() {
	local bad=0
	stop_all || bad=1
	soon 5 rmdir "$group" 2>/dev/null
	[ $bad = 0 ] || exit 1
}
trap leave EXIT
cat >"$tmp/inside" <<E2
#!/bin/sh
echo \$\$ >$group/cgroup.procs
exec "\$@"
E2
chmod +x "$tmp/inside"
metrics=127.0.0.1:$(free_port)
INSIDE=$tmp/inside winnowd --insecure-no-key --metrics "$metrics" --threads 1
pid=$DAEMON
grep -q "event=memory limit=$limit bytes_max=1[0-9]* text=" "$tmp/winnowd-$PORT.log" || fail "it does not say what it may use: $(cat "$tmp/winnowd-$PORT.log")"
! grep -q event=small_buffers "$tmp/winnowd-$PORT.log" || {
	echo "socket buffers are limited here, and with them what jobs take"
	exit 77
}
for job in 1 2 3 4 5 6 7 8; do
	start "job$job" bench --insecure-no-key --job "job$job" --size 4M --density 1 --iters 1000000
done
decided() {
	"$BUILD/winnow" status "$metrics" --json >"$tmp/status" || fail "winnowd does not answer: $(cat "$group"/memory.oom_control "$group"/memory.events 2>/dev/null)"
	[ "$(grep -c '"state": "running"' "$tmp/status") $(cat "$tmp"/job?.status 2>/dev/null | wc -l)" = "3 5" ]
}
soon 20 decided
[ "$(cat "$tmp"/job?.status | sort | uniq -c | tr -s ' ')" = " 5 1" ] || fail "want 5 jobs refused, and 3 that run: $("$BUILD/winnow" status "$metrics")"
[ "$(grep -l 'the job needs .* are in use by other jobs (bytes-max)' "$tmp"/job?.err | wc -l)" = 5 ] || fail "they are not told why: $(cat "$tmp"/job?.err)"
kill -0 "$pid" || fail "winnowd is gone"
! grep -hs 'oom_kill [1-9]' "$group/memory.oom_control" "$group/memory.events" || fail "something was killed"
"$BUILD/winnow" status "$metrics" | seen -E '15\.[0-9]MB of 1[0-9]\.[0-9]MB for slots' || fail "status does not show the limit: $("$BUILD/winnow" status "$metrics")"
grep -q '"memory_limit_from": "memory"' "$tmp/status" || fail "status does not say where the limit is from"
kill -KILL "$pid"

# What the operator says counts.
INSIDE=$tmp/inside winnowd --insecure-no-key --metrics "$metrics" --bytes-max 7M
! grep -q event=memory "$tmp/winnowd-$PORT.log" || fail "it speaks of memory though --bytes-max is given"
"$BUILD/winnow" status "$metrics" --json >"$tmp/status"
for line in '"memory_limit_from": "option"' '"memory_limit_bytes": 7340032'; do
	grep -q "$line" "$tmp/status" || fail "--bytes-max does not count: no $line"
done

# What jobs had goes back to the system when they end, in whatever order: 7 MB are left, and 34 to 38 were before.
winnowd --insecure-no-key --metrics no
for round in 1 2 3; do
	for job in 1 2 3 4 5 6; do
		start "r$round-$job" bench --insecure-no-key --job "r$round-$job" --size 256K --iters $((job * 60)) --payload $((job % 2 ? 8972 : 1472))
	done
	for job in 1 2 3 4 5 6; do expect "r$round-$job" 60 0; done
done
has_little() { resident=$(awk '/^VmRSS/ { print $2 }' "/proc/$DAEMON/status") && [ "$resident" -le 15000 ]; }
soon 5 has_little || fail "without a job winnowd holds $resident kB"
echo "within the limit"
