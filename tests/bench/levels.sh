# shellcheck shell=bash
# levels.sh - part of bench.sh: two sites of four workers below one parent, beside the same hosts with one level. Sourced
# by bench.sh
# shellcheck disable=SC2034,SC2154 # bench.sh sets them, or reads them
#
# LEVELS="100mbit 100mbit/20/1 0 small" chooses lines: their rate (0: not shaped), round trip in ms, and loss in per cent; and
# small operations. LEVELS_SIZE is that of the tensors, and LEVELS_LINK the rate of a worker: where two CPUs play all hosts,
# they are the limit before eight links of 1 Gbit/s are.
#
# Each site has a switch: its workers have `levels_link`, its aggregator's port is not shaped, and a line of `levels_line` leads
# from it to the parent's switch. Sums that a site sends to its group do not enter the line, as with a router at its end;
# those that the parent sends to a group do come down, which is the best that one level can have. line.c delays and loses, since
# not every kernel has netem.

levels_sites=2 levels_each=4 levels_size=${LEVELS_SIZE:-20M} levels_line=100mbit levels_link=${LEVELS_LINK:-1gbit}

levels_host() { # name, its last byte, rate, switch
	local links_bridge=$4
	links_host "$1" "10.77.0.$2" "$3" 1500
}

levels_lines=()  # processes that play long lines
levels_parent=() # options of the aggregator that sites have as their parent
# The queue's device is one end of a pair; line.c stands between the two pairs of a line.
levels_far() { # site, round trip in ms, loss in per cent
	local s=$1 end said=$raw/levels-line-$1.log tries
	for end in up down; do
		ip -n "$net-sw" link add "$end$s" mtu 1500 type veth peer name "$end${s}x" mtu 1500
		ip netns exec "$net-sw" ethtool -K "$end$s" tx off gso off >/dev/null # line.c gets frames as they are on a wire
		ip -n "$net-sw" link set "$end${s}x" up
	done
	ip netns exec "$net-sw" "$build/tests/bench/line" "up${s}x" "down${s}x" "$(awk "BEGIN { print $2 / 2 }")" "$3" >"$said" &
	levels_lines+=($!)
	pids+=($!)
	for ((tries = 0; tries < 100; tries++)); do grep -qs ready "$said" && return; sleep 0.05; done
	echo "bench: the line does not begin" >&2
	exit 1
}

levels_down() {
	[ -z "${levels_lines[*]:-}" ] || stop "${levels_lines[@]}"
	levels_lines=()
	links_down
	if grep -hs 'no room' "$raw"/levels-line-*.log | grep -v ' 0 found no room'; then
		echo "bench: the line itself lost frames" >&2
		exit 1
	fi
	rm -f "$raw"/levels-line-*.log
}

levels_up() { # rate of the lines (0: not shaped), round trip in ms, loss in per cent
	local s r device links_burst=$share_bucket # or a small operation would not see the line's rate
	links_up 0 "$levels_link" 1500
	for ((s = 0; s < levels_sites; s++)); do
		ip -n "$net-sw" link add "br$((s + 1))" mtu 1500 type bridge mcast_snooping 0
		ip -n "$net-sw" link set "br$((s + 1))" up
		if [ "$2" = 0 ]; then
			ip -n "$net-sw" link add "up$s" mtu 1500 type veth peer name "down$s" mtu 1500
		else
			levels_far "$s" "$2" "$3"
		fi
		ip -n "$net-sw" link set "up$s" master "br$((s + 1))" up
		ip -n "$net-sw" link set "down$s" master br0 up
		ip netns exec "$net-sw" bridge link set dev "up$s" mcast_flood off
		for device in "up$s" "down$s"; do
			tc -n "$net-sw" qdisc add dev "$device" root tbf rate "${1/#0*/100gbit}" burst "$links_burst" limit 8mb
		done
		levels_host "s$s" $((111 + s)) 0 "br$((s + 1))"
		for ((r = s * levels_each; r < (s + 1) * levels_each; r++)); do
			levels_host "w$r" $((r + 1)) "$levels_link" "br$((s + 1))"
		done
	done
}

# What the lines have carried in bytes, with headers: up and down of each site. TBF counts all datagrams of a batch.
levels_bytes() {
	local s device
	for ((s = 0; s < levels_sites; s++)); do
		for device in "up$s" "down$s"; do
			tc -n "$net-sw" -s -j qdisc show dev "$device" | python3 -c 'import json, sys
print(next(q["bytes"] for q in json.load(sys.stdin) if q["kind"] == "tbf"))'
		done
	done | xargs
}

# One job: rank r runs on levels_hosts[r] with the aggregator levels_at[r]. Sets levels_daemons.
levels_job() { # out-file options..
	local i others=() out=$1 hosts=("${levels_hosts[@]}")
	shift
	set -- --insecure-no-key --world "${#hosts[@]}" --check "$@"
	for ((i = 1; i < ${#hosts[@]}; i++)); do
		on "${hosts[i]}" "$build/winnow" bench --aggregators "${levels_at[i]}" --rank "$i" "$@" >/dev/null &
		others+=($!)
	done
	on "${hosts[0]}" "$build/winnow" bench --aggregators "${levels_at[0]}" --rank 0 --json "$@" >"$out"
	all_end "${others[@]}"
}

levels_serve() { # levels: 1 or 2; sets levels_daemons, levels_hosts, levels_at
	local s r daemon
	levels_daemons=() levels_hosts=() levels_at=()
	serve a0 10.77.0.101:5555 --insecure-no-key --metrics no --log error "${levels_parent[@]}"
	levels_daemons+=("$daemon")
	for ((s = 0; s < levels_sites; s++)); do
		if [ "$1" = 2 ]; then
			serve "s$s" "10.77.0.$((111 + s)):5555" --insecure-no-key --metrics no --log error --parent 10.77.0.101:5555 --site "site$s"
			levels_daemons+=("$daemon")
		fi
		for ((r = 0; r < levels_each; r++)); do
			levels_hosts+=("w$((s * levels_each + r))")
			levels_at+=("$([ "$1" = 2 ] && echo "10.77.0.$((111 + s))" || echo 10.77.0.101):5555")
		done
	done
}

# The bytes of a job's operations are what the lines carried, less what they carry for the same job without a tensor.
levels_measure() { # name, levels, density, options..
	local name=$raw/levels-$1 before between after
	levels_serve "$2"
	local rate=${levels_link%bit}
	set -- --sites $(($2 == 2 ? levels_sites : 0)) --density "$3" --iters "$ITERS" --warmup 1 --rate "${rate^^}" --aggregator-rate 1T "${@:4}"
	before=$(levels_bytes)
	levels_job "$name.empty" "$@" --size 4
	between=$(levels_bytes)
	levels_job "$name.json" "$@" --size "$levels_size"
	after=$(levels_bytes)
	stop "${levels_daemons[@]}"
	echo "$before $between $after" >"$name.bytes"
}

# The ring of Gloo, and the same by sites: a sum in each, then of their first workers, then to all. And Open MPI's ring.
levels_peers() { # a line of LEVELS, name
	local way SIZE=$levels_size
	for way in ring sites; do
		GLOO_SITE=$([ "$way" = ring ] || echo "$levels_each") gloo $((levels_sites * levels_each)) "$raw/levels-$2-gloo-$way.json" \
			"$(numfmt --from=iec "$levels_size")" "$ITERS"
	done
	mpi $((levels_sites * levels_each)) "$raw/levels-$2-mpi.json" ring 1 random
	python3 tests/bench/levels.py peers "$raw/levels-$2" "$1"
}

levels_rows() { # a line of LEVELS
	local d rate far loss name=${1//\//-}
	IFS=/ read -r rate far loss _ <<<"$1/0/0"
	levels_up "$rate" "$far" "$loss"
	[ "$far" = 0 ] || levels_parent=(--window-bytes 8M) # levels.md, "Long lines"
	for d in 1 0.1 0.01; do
		levels_measure "$name-one-$d" 1 "$d"
		[ "$rate" = 0 ] || [ "$far" != 0 ] || levels_measure "$name-unicast-$d" 1 "$d" --multicast=0
		levels_measure "$name-two-$d" 2 "$d"
		python3 tests/bench/levels.py rows "$raw/levels-$name" "$d" "$1" "$levels_link" $((ITERS + 1))
	done
	# Where a line loses, TCP takes minutes for an operation: LEVELS_PEERS=yes.
	[ "$rate" = 0 ] || [[ $loss != 0 && -z ${LEVELS_PEERS:-} ]] || levels_peers "$1" "$name"
	levels_down
	levels_parent=()
}

# A small operation of a site's own workers.
levels_below() { # site, options..
	local s=$1 r levels_hosts=() levels_at=()
	for ((r = s * levels_each; r < (s + 1) * levels_each; r++)); do levels_hosts+=("w$r") levels_at+=("10.77.0.$((111 + s)):5555"); done
	levels_job "$raw/levels-small-below-$s.json" "${@:2}"
}

# A small operation through both levels takes a round trip in each site, at once, and one between the sites and their parent.
levels_latency() {
	local s how=(--size 4096 --density 1 --iters 300 --warmup 30) daemon below=()
	levels_up "$levels_line" 0 0
	levels_serve 1
	levels_job "$raw/levels-small-one.json" "${how[@]}"
	levels_hosts=() levels_at=()
	for ((s = 0; s < levels_sites; s++)); do levels_hosts+=("s$s") levels_at+=(10.77.0.101:5555); done
	levels_job "$raw/levels-small-above.json" "${how[@]}"
	stop "${levels_daemons[@]}"
	levels_daemons=()
	for ((s = 0; s < levels_sites; s++)); do
		serve "s$s" "10.77.0.$((111 + s)):5555" --insecure-no-key --metrics no --log error
		levels_daemons+=("$daemon")
		levels_below "$s" "${how[@]}" &
		below+=($!)
	done
	all_end "${below[@]}"
	stop "${levels_daemons[@]}"
	levels_serve 2
	levels_job "$raw/levels-small-two.json" "${how[@]}"
	stop "${levels_daemons[@]}"
	levels_down
	python3 tests/bench/levels.py small "$raw/levels-small"
}

part_levels() {
	local what
	rm -f "$raw"/levels-*
	echo
	echo "## Two levels: $levels_sites sites of $levels_each workers at $levels_link, $levels_size of f32, random overlap, MTU 1500. Lines: rate/round trip in ms/loss in %"
	python3 tests/bench/levels.py head
	for what in ${LEVELS:-$levels_line $levels_line/20 $levels_line/20/1 0 small}; do
		if [ "$what" = small ]; then levels_latency; else levels_rows "$what"; fi
	done
}
