#!/usr/bin/env bash
# The device that the XDP program is on is deleted and made again, as a driver that is loaded anew does: winnowd says so, shows that it
# works through user space now, and blames no worker; the job that runs goes on, and new ones come.
. "$(dirname "$0")/lib.sh"
need_namespaces
WINNOWD_OPTIONS="--datapath xdp --device eth0"
hosts_up 2 1 1500
at=10.77.0.101
winnowd_inside 0 --insecure-no-key --metrics 127.0.0.1:9555
log=$tmp/winnowd-a0.log
state() { # field: of /status
	inside a0 "$BUILD/winnow" status --json >"$tmp/status.json"
	python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["aggregators"][0]["report"][sys.argv[2]])' "$tmp/status.json" "$1"
}
job() { # name
	for rank in 0 1; do
		start "$1$rank" inside w$rank env WINNOW_AGGREGATORS=$at:5555 WINNOW_INSECURE_NO_KEY=1 WINNOW_JOB="$1" WINNOW_WIRE=fixed32 WINNOW_SILENCE=30s \
			"$BUILD/tests/e2e/caller" $rank 2 262144
	done
	await "event=job_started job=$1 " "$log"
}
[ "$(state datapath) $(state xdp)" = "xdp native" ] || fail "it begins with $(state datapath), $(state xdp)"
job runs
grep -q 'event=job_started job=runs .*fast=yes' "$log" || fail "the kernel does not help: $(cat "$log")"
ip -n "$net-sw" link del "$net-a0"
await 'level=error event=device_lost device=eth0 text="the device is gone, and the XDP program with it' "$log"
[ "$(state datapath) $(state xdp)" = "udp no: eth0 is gone" ] || fail "it goes on with $(state datapath), $(state xdp)"
ip link add "$net-a0" netns "$net-sw" mtu 1500 type veth peer name eth0 netns "$net-a0" mtu 1500
ip -n "$net-sw" link set "$net-a0" master br0 up
ip -n "$net-a0" addr add $at/24 dev eth0
ip -n "$net-a0" link set eth0 up
inside a0 ip link show eth0 | seen xdp && fail "there is a program on the new device"
job later
grep -q 'event=job_started job=later .*fast=no' "$log" || fail "the kernel is said to help: $(cat "$log")"
sums() { # job
	grep -cE 'event=job_(failed|finished) job='"$1" "$log"
}
sleep 3 # in which a job whose PUSHes come to user space alone would be told to be slow
grep -q 'event=\(slow\|trouble\|path\)' "$log" && fail "somebody is blamed: $(grep 'event=\(slow\|trouble\|path\)' "$log")"
[ "$(sums runs) $(sums later)" = "0 0" ] || fail "a job has ended: $(cat "$log")"
for name in runs later; do steady_ends $name; done
[ "$(grep -c event=device_lost "$log")" = 1 ] || fail "it is said more than once"
echo "said, and gone on"
