# shellcheck shell=bash
# share.sh - part of bench.sh: what jobs and TCP get of one queue, beside what they should get. Sourced by bench.sh
# shellcheck disable=SC2034,SC2154 # bench.sh sets them, or reads them
#
# Two hosts with links of 300 Mbit/s and queues of 1 MB in both directions; each has a worker of each job. A program at
# host w0's link counts what has passed the queues, by job and time (tests/e2e/mark.bpf.c).

share_rate=300mbit share_queue=1mb
share_marks=0   # bytes waiting, from which on a queue marks; 0: it never does
share_block=360 # a block a datagram
share_after=0
share_bucket=32kb # what passes at once where nothing has for a while: less costs a timer's interrupt for each datagram

share_programs() { # name namespace device direction program
	local at=$raw/bpf/$1
	bpftool prog loadall "$build/tests/e2e/mark.bpf.o" "$at" pinmaps "$at"
	ip netns exec "$2" tc qdisc add dev "$3" clsact 2>/dev/null || true # there is one
	ip netns exec "$2" tc filter add dev "$3" "$4" bpf da pinned "$at/$5"
}

share_up() { # workers
	local links_burst=$share_bucket links_queue=$share_queue # only here: other parts have longer queues
	links_up "$1" "$share_rate" 1500
	mkdir -p "$raw/bpf"
	mount -t bpf bpf "$raw/bpf"
	share_programs up "$net-sw" w0 ingress winnow_count
	share_programs down "$net-w0" eth0 ingress winnow_count
}

share_buckets() { # workers: their links have share_bucket from now on
	local i shape=(root tbf rate "$share_rate" burst "$share_bucket" limit "$share_queue")
	for ((i = 0; i < $1; i++)); do
		tc -n "$net-sw" qdisc change dev "w$i" "${shape[@]}"
		tc -n "$net-w$i" qdisc change dev eth0 "${shape[@]}"
	done
}

share_marking() { # workers, bytes waiting: from now on all queues mark
	local i name rate=$((${share_rate%mbit} * 1000000 / 8))
	for ((i = 0; i < $1; i++)); do
		share_programs "mark-up-$i" "$net-w$i" eth0 egress winnow_mark
		share_programs "mark-down-$i" "$net-sw" "w$i" egress winnow_mark
		for name in "mark-up-$i" "mark-down-$i"; do
			# shellcheck disable=SC2046 # bytes of three numbers
			bpftool map update pinned "$raw/bpf/$name/rules" key 0 0 0 0 value $(python3 -c 'import struct, sys
print(*struct.pack("<QQQ", 0, int(sys.argv[1]), int(sys.argv[2])))' "$rate" "$2")
		done
	done
}

share_down() {
	umount "$raw/bpf"
	links_down
}

share_daemon() {
	# shellcheck disable=SC2086 # a list
	serve a0 10.77.0.101:5555 --insecure-no-key --log error --metrics no ${DAEMON_OPTIONS:-}
}

share_job() { # name job size iterations: starts its workers, on w0 and w1, in share_after seconds; sets job_pids
	local name=$1 job=$2 i
	job_pids=()
	for i in 0 1; do
		# shellcheck disable=SC2016 # it is the inner shell's
		ip netns exec "$net-w$i" sh -c 'sleep "$0" && exec "$@"' "$share_after" \
			"$build/winnow" bench --aggregators 10.77.0.101:5555 --insecure-no-key --network shared --job "$job" --rank $i --world 2 \
			--size "$3" --block "$share_block" --density 1 --warmup 0 --iters "$4" --json \
			>"$raw/share-$name-$job-$i.json" &
		job_pids+=($!)
	done
	pids+=("${job_pids[@]}")
}

# While it runs, the bytes that wait in host w0's queues are noted.
share_watch() { # name
	python3 tests/bench/share.py watch "$net" >"$raw/share-$1.queues" &
	watch=$!
	pids+=("$watch")
}

share_flows() { # name: until something waits in a queue, after all that is known now
	local i from
	from=$(wc -l <"$raw/share-$1.queues")
	for ((i = 0; i < 300; i++)); do
		tail -n +$((from + 3)) "$raw/share-$1.queues" | tail -n 1 | grep -q '[1-9][0-9]\{4\}' && return
		sleep 0.1
	done
	echo "bench: $1: the dense job does not begin" >&2
	exit 1
}

share_over() { # name: the jobs are; keeps what was counted
	local way
	kill "$watch"
	wait "$watch" 2>/dev/null || true
	for way in up down; do
		bpftool -j map dump pinned "$raw/bpf/$way/bins" >"$raw/share-$1.$way.json"
		bpftool -j map dump pinned "$raw/bpf/$way/results" >"$raw/share-$1.results-$way.json"
	done
	[ ! -e "$raw/bpf/mark-up-0" ] || bpftool -j map dump pinned "$raw/bpf/mark-up-0/counts" >"$raw/share-$1.marks.json"
	stop "$daemon"
}

share_kill() { # pid..: jobs that have lasted, and would longer
	kill -0 "$@"
	kill "$@" 2>/dev/null || true
	wait "$@" 2>/dev/null || true
}

share_row() { # name what..: share.py prints the rows
	python3 tests/bench/share.py "${@:2}" "$raw/share-$1"
}

share_dense() { # name
	local first
	share_up 2
	[ "$share_marks" = 0 ] || share_marking 2 "$share_marks"
	share_daemon
	share_watch "$1"
	share_job "$1" a 100M 2
	first=("${job_pids[@]}")
	share_job "$1" b 100M 2
	all_end "${first[@]}" "${job_pids[@]}"
	share_over "$1"
	share_row "$1" dense
	share_down
}

# A link that is in use has no bucket left, and one of its own has none at all: so what is alone has the least that passes a datagram.
share_small() {
	local dense
	share_bucket=1600b share_up 2
	share_daemon
	share_watch small
	share_block=256 share_job small alone 4096 1000
	all_end "${job_pids[@]}"
	share_buckets 2
	share_block=256 share_job small bucket 4096 1000
	all_end "${job_pids[@]}"
	share_job small dense 400M 1 # one operation: what ran between two would find no queue
	dense=("${job_pids[@]}")
	share_flows small
	share_block=256 share_job small beside 4096 100
	all_end "${job_pids[@]}"
	share_kill "${dense[@]}"
	share_over small
	share_row small small
	share_down
}

share_iperf() { # out-file iperf3's options..
	local server i
	ip netns exec "$net-a0" iperf3 -s -1 >/dev/null &
	server=$!
	pids+=("$server")
	for ((i = 0; i < 100; i++)); do
		on a0 ss -Hltn 'sport = :5201' | grep -q . && break
		sleep 0.05
	done
	on w0 iperf3 -c 10.77.0.101 -J "${@:2}" >"$1"
	all_end "$server"
}

# Either is there first; what iperf3 counts begins some seconds after the other one has come.
share_tcp() { # name, seconds by which TCP is before the job (0: behind it), iperf3's options: -R for the way of RESULTs
	local dense
	share_up 2
	# Else TCP would never have more in the switch's queues than what its socket may have in its host's, 1 ms of its pace.
	share_programs forget "$net-sw" a0 ingress winnow_forget
	share_daemon
	share_watch "$1"
	share_iperf "$raw/share-$1.alone" -t 3 "${@:3}"
	share_after=$2 share_job "$1" dense 100M 1000
	dense=("${job_pids[@]}")
	[ "$2" != 0 ] || share_flows "$1"
	share_iperf "$raw/share-$1.beside" -t 12 -O $((3 + 2 * $2)) "${@:3}"
	share_kill "${dense[@]}"
	share_over "$1"
	share_row "$1" tcp
	share_down
}

share_join() {
	local first
	share_up 2
	share_daemon
	share_watch join
	share_job join a 400M 1
	first=("${job_pids[@]}")
	share_flows join
	sleep 1
	share_job join b 100M 1
	all_end "${job_pids[@]}"
	share_kill "${first[@]}"
	share_over join
	share_row join join
	share_down
}

# 16 hosts of 1 Gbit/s send to an aggregator's port of 1 Gbit/s and 200 KB.
share_incast() {
	local i workers=() links_burst=$share_bucket links_queue=1mb
	links_up 16 1gbit 1500
	ip netns exec "$net-sw" tc qdisc add dev a0 root tbf rate 1gbit burst "$share_bucket" limit 200kb
	share_daemon
	for ((i = 15; i >= 0; i--)); do
		ip netns exec "$net-w$i" "$build/winnow" bench --aggregators 10.77.0.101:5555 --insecure-no-key --network shared --rank $i --world 16 \
			--size 8M --block $share_block --density 1 --warmup 1 --iters 5 --rate 1G --aggregator-rate 1G --json \
			>"$raw/share-incast-$i.json" &
		workers+=($!)
	done
	pids+=("${workers[@]}")
	all_end "${workers[@]}"
	stop "$daemon"
	share_row incast incast
	links_down
}

part_share() {
	echo
	echo "## Sharing one queue: $share_rate, $share_queue, both ways of each of two hosts, MTU 1500"
	printf '%-14s %-44s %10s   %s\n' '' '' is 'should be'
	share_dense dense
	share_marks=30000 share_dense dense-marks
	share_small
	share_tcp tcp-up 0
	share_tcp tcp-down 0 -R
	share_tcp first-up 3
	share_tcp first-down 3 -R
	share_join
	share_incast
}
