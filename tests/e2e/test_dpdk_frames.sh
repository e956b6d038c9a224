#!/usr/bin/env bash
# Frames of every kind from a raw socket while a job runs, of IPv4 and of IPv6: damaged, fragmented, tagged, with IP options, for
# others. They are counted, and the results are right. The kernel answers none of the job's datagrams.
# release: another data path
. "$(dirname "$0")/lib.sh"
need_dpdk
hosts_up 3 1 1500
switch_passes_all
value() { inside w2 bash -c ". tests/e2e/lib.sh; metric 10.77.0.101:9555 'winnow_$1'"; }
unreachable() { # host: ICMP messages that its kernel has sent, of both families
	# shellcheck disable=SC2016 # awk's
	inside "$1" awk '/^Icmp:/ { if (!n) { for (i = 1; i <= NF; i++) if ($i == "OutDestUnreachs") n = i } else sum += $n }
		$1 == "Icmp6OutDestUnreachs" { sum += $2 } END { print sum }' /proc/net/snmp /proc/net/snmp6
}
# On a busy machine the port itself loses some; they are counted, too.
near() { [ "$1" -ge $(($2 - $2 / 50)) ] && [ "$1" -le $(($2 + $2 / 50)) ]; }
quiet() { # neither kernel has called a port unreachable, since it was asked to by what is really for nobody
	for host in a0 w0; do
		# One or two may come from a neighbour whose address the other side's kernel was asked to find.
		[ "$(unreachable $host)" -le $(($(cat "$tmp/$host.icmp" 2>/dev/null || echo 0) + 2)) ] ||
			fail "the kernel of $host has called a port unreachable $(unreachable $host) times"
	done
}

hosts_six 2
odd() { # the aggregator's address for datagrams, a worker's, and whom the frames are from
	local here=${1%/*} worker=$2 stranger=$3
	# Flooded frames, with an address or a tag that is not ours, reach the port, too.
	winnowd_inside 0 --insecure-no-key --threads 2 --datapath dpdk --device eth0 --data-address "$1" --metrics 10.77.0.101:9555
	rm -f "$tmp"/*.icmp
	for host in a0 w0; do unreachable $host >"$tmp/$host.icmp"; done
	for rank in 0 1; do
		road=()
		((rank != 0)) || road=(--datapath dpdk --device eth0 --data-address "$worker")
		start w$rank inside w$rank "$BUILD/winnow" bench --aggregators 10.77.0.101:5555 --insecure-no-key --rank $rank --world 2 --check --json \
			--size 1M --density 0.3 --iters 1000 "${road[@]}"
	done
	await event=job_started "$tmp/winnowd-a0.log"
	before_errors=$(value net_rx_errors_total) before_others=$(value net_rx_others_total)
	sleep 0.5
	quiet
	inside w2 python3 tests/e2e/odd_frames.py "$stranger" "$here" 5555 "$(inside a0 cat /sys/class/net/eth0/address)" >"$tmp/odd.out" ||
		fail "the sender of odd frames failed"
	read -r damaged others taken <"$tmp/odd.out"
	[ ! -s "$tmp/w0.status" ] || fail "the job ended before the odd frames did"
	sleep 0.3
	for host in a0 w0; do unreachable $host >"$tmp/$host.icmp"; done
	errors=$(($(value net_rx_errors_total) - before_errors)) strangers=$(($(value net_rx_others_total) - before_others))
	got=$(value 'packets_dropped_total{reason="bad_magic"}')
	near "$errors" "$damaged" || fail "$damaged frames were damaged, $errors were counted"
	near "$got" "$taken" || fail "$taken strange datagrams were well framed, $got were looked at"
	[ "$strangers" -ge $((others - others / 50)) ] || fail "$others frames were for others, $strangers were counted"
	expect w0 60 0
	expect w1 60 0
	for rank in 0 1; do [ "$(json "$tmp/w$rank.out" errors)" = 0 ] || fail "rank $rank: wrong results"; done
	quiet
	winnowd_stop
	echo "$here: $damaged damaged, $others for others, $taken well framed"
}
odd 10.77.0.101/24 10.77.0.1 10.77.0.102
odd fd77::101/64 fd77::1 fd77::102
