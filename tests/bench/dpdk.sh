# shellcheck shell=bash
# dpdk.sh - the dpdk data path: one lcore against dpdk-testpmd, what it takes when idle, shaped links. Sourced by bench.sh

huge_dir=/sys/kernel/mm/hugepages/hugepages-2048kB
lcore_dut=$(($(nproc) - 1)) # the CPU of what is measured; its source has CPU 0

# Room for `pages` huge pages; huge_back gives back what was added.
huge_need() { # pages
	local free
	free=$(cat $huge_dir/free_hugepages)
	huge_added=${huge_added:-0}
	[ "$free" -ge "$1" ] && return
	echo $(($(cat $huge_dir/nr_hugepages) + $1 - free)) >$huge_dir/nr_hugepages
	huge_added=$((huge_added + $1 - free))
}

huge_back() {
	[ "${huge_added:-0}" = 0 ] || echo $(($(cat $huge_dir/nr_hugepages) - huge_added)) >$huge_dir/nr_hugepages
	huge_added=0
}

thread_named() { # pid pattern
	local task
	for task in /proc/"$1"/task/*; do
		grep -qE "$2" "$task/comm" 2>/dev/null && echo "$1/${task##*/}" && return
	done
}

lcore_eal() { # cpus vdev
	echo "--lcores $1 --in-memory --no-pci --no-telemetry -m 160 --vdev=$2"
}

packet_port="net_af_packet0,iface=eth0,framesz=2048,blocksz=65536,framecnt=4096"

# Two hosts on one veth, for ports that are the kernel's: $net-d has what is measured, $net-s the source.
lcore_wire() {
	local host
	for host in d s; do
		links_made+=("$net-$host")
		ip netns add "$net-$host"
		ip -n "$net-$host" link set lo up
	done
	ip link add eth0 netns "$net-d" type veth peer name eth0 netns "$net-s"
	ip -n "$net-d" addr add 10.99.0.1/24 dev eth0
	ip -n "$net-s" addr add 10.99.0.2/24 dev eth0
	for host in d s; do ip -n "$net-$host" link set eth0 up; done
}

# What gets the frames: sets dut (pid), task (the thread that polls) and peer (for the source).
lcore_start() { # testpmd|winnowd vdev listen-address daemon-options..
	local kind=$1 vdev=$2 address=$3 i
	shift 3
	if [ "$kind" = testpmd ]; then
		# shellcheck disable=SC2046 # a list
		"${dut_host[@]}" dpdk-testpmd $(lcore_eal "0@0,1@$lcore_dut" "$vdev") -- --forward-mode=macswap \
			--port-topology=loop --nb-cores=1 --total-num-mbufs=16384 <"$raw/stdin" >"$raw/testpmd.log" 2>&1 &
		peer='echo'
	else
		"${dut_host[@]}" "$build/winnowd" --listen "$address:5599" --insecure-no-key --threads 1 --log error \
			--datapath dpdk --eal "$(lcore_eal "0@$lcore_dut" "$vdev")" "$@" &
		peer=$address:5599
	fi
	dut=$!
	pids+=("$dut")
	task=
	for ((i = 0; i < 50; i++)); do
		task=$(thread_named "$dut" 'winnow-data|worker' || true)
		[ -z "$task" ] || break
		sleep 0.1
	done
	sleep 0.5
}

# One second of frames from a source, over a port of one kind.
lcore_run() { # out-file memif|af_xdp|af_packet testpmd|winnowd source-options daemon-options..
	local out=$1 port=$2 kind=$3 options=$4 feed i dut task peer dut_host=() source_host=()
	local link="socket=$net-memif,rsize=11,bsize=4096" vdev="" address=10.99.0.1 from=$packet_port
	shift 4
	huge_need 200
	exec 9<>"$raw/stdin"
	case $port in
	memif)
		address=127.0.0.1 vdev="net_memif0,role=server,$link"
		from="net_memif0,role=client,$link,zero-copy=yes --single-file-segments"
		set -- --data-address 10.99.0.1/24 "$@"
		;;
	af_xdp) vdev="net_af_xdp0,iface=eth0,xdp_prog=$build/ebpf/redirect.bpf.o" ;;
	af_packet) vdev=$packet_port ;;
	esac
	if [ "$port" != memif ]; then
		lcore_wire
		dut_host=(ip netns exec "$net-d") source_host=(ip netns exec "$net-s")
		options+=" -w 48" # a veth's ring has 256 places
		set -- --device eth0 "$@"
	fi
	lcore_start "$kind" "$vdev" $address "$@"
	: >"$out"
	# shellcheck disable=SC2086 # a list
	"${source_host[@]}" "$build/tests/bench/dpdk_source" -e "$(lcore_eal 0@0 "$from")" -p "$peer" -t "$task" -s 1 \
		$options <"$raw/stdin" >"$out" 2>"$raw/source.log" &
	feed=$!
	pids+=("$feed")
	for ((i = 0; i < 150; i++)); do
		if [ -s "$out" ] || ! kill -0 "$feed" 2>/dev/null; then break; fi
		sleep 0.1
	done
	# First what polls: net_memif of DPDK 22.11 does not bear a peer that goes meanwhile.
	kill -TERM "$dut"
	wait "$dut" || true
	kill "$feed" 2>/dev/null || true
	wait "$feed" || true
	exec 9>&-
	[ "$port" = memif ] || links_down
	[ -s "$out" ] || tail -n 2 "$raw/source.log" >&2
}

lcore_rows=(
	"memif-testpmd-1024"
	"memif-multicast-1024"
	"memif-unicast-1024 --multicast no"
	"memif-unicast-nosum-1024 --multicast no"
	"memif-unicast-i32-1024 --multicast no"
	"memif-testpmd-3072"
	"memif-unicast-3072 --multicast no"
	"af_xdp-testpmd-1024"
	"af_xdp-multicast-1024"
	"af_xdp-unicast-1024 --multicast no"
	"af_packet-testpmd-1024"
	"af_packet-unicast-1024 --multicast no"
)

part_lcore() {
	local round row name daemon kind source
	echo
	echo "## One lcore against dpdk-testpmd (macswap): dense, PUSHes of 4 workers as fast as they go"
	[ -p "$raw/stdin" ] || mkfifo "$raw/stdin"
	rm -f "$raw"/lcore-*.json
	for ((round = 0; round < ${ROUNDS:-5}; round++)); do
		for row in "${lcore_rows[@]}"; do
			read -r name daemon <<<"$row"
			kind=$([[ $name == *testpmd* ]] && echo testpmd || echo winnowd)
			source="-b ${name##*-}"
			case $name in *nosum*) source+=" -c" ;; *i32*) source+=" -i" ;; esac
			# shellcheck disable=SC2086 # a list
			lcore_run "$raw/lcore-$name-$round.json" "${name%%-*}" "$kind" "$source" $daemon
		done
	done
	huge_back
	python3 tests/bench/lcore.py "$raw" "${lcore_rows[@]%% *}"
}

# ---- idle ----

cpu_ns() { # pid
	cat /proc/"$1"/task/*/schedstat | awk '{ s += $1 } END { printf "%.0f\n", s }'
}

cpu_share() { # pid: per cent of a CPU during two seconds
	local before
	before=$(cpu_ns "$1")
	sleep 2
	awk "BEGIN { printf \"%.1f\", ($(cpu_ns "$1") - $before) / 2e7 }"
}

# Per cent of a CPU without a job, and with one whose workers have been stopped; then one small operation.
idle_row() { # name daemon-options
	local name=$1 options=$2 daemon workers=() i alone job f=$raw/idle.json
	# shellcheck disable=SC2086 # a list
	serve a0 10.77.0.101:5555 --insecure-no-key --log error $options
	sleep 1
	alone=$(cpu_share "$daemon")
	for i in 0 1 2 3; do
		ip netns exec "$net-w$i" "$build/winnow" bench --aggregators 10.77.0.101:5555 --insecure-no-key --rank $i --world 4 \
			--size 1M --iters 1000000 >/dev/null 2>&1 &
		workers+=($!)
		pids+=($!)
	done
	sleep 1
	kill -STOP "${workers[@]}"
	sleep 0.5
	job=$(cpu_share "$daemon")
	kill -KILL "${workers[@]}"
	wait "${workers[@]}" 2>/dev/null || true
	stop "$daemon"
	DAEMON_OPTIONS=$options ITERS=3000 winnow 4 "$f" --size 1K --density 1 --wire f32
	cp "$f" "$raw/idle-eager.json"
	DAEMON_OPTIONS=$options ITERS=3000 winnow 4 "$f" --size 1K --density 1 --wire fixed32
	printf '%-18s %9s %9s %10.1f %10.1f %10.1f %10.1f\n' "$name" "$alone" "$job" \
		"$(value "$raw/idle-eager.json" time_us.median)" "$(value "$raw/idle-eager.json" time_us.p99)" \
		"$(value "$f" time_us.median)" "$(value "$f" time_us.p99)"
}

part_idle() {
	local idle
	echo
	echo "## Idle: per cent of a CPU; and 1 KiB of f32, 4 workers in namespaces, unshaped, time in us"
	printf '%-18s %9s %9s %10s %10s %10s %10s\n' datapath 'no job' 'idle job' 'eager p50' p99 'frame p50' p99
	links_up 4 0 1500
	dpdk_switch
	idle_row udp ""
	for idle in 1ms 50us 10us 0; do idle_row "dpdk --idle $idle" "--datapath dpdk --device eth0 --idle $idle"; done
	links_down
}

# ---- shaped links ----

# A packet socket sees what has been put together whole: the switch must take super-packets apart.
dpdk_switch() {
	on a0 ethtool -K eth0 gro off
	ip netns exec "$net-sw" ethtool -K a0 tx-udp-segmentation off tso off gso off
}

dpdk_rows() { # name daemon-options mtus..
	local mtu
	for mtu in "${@:3}"; do
		links_up 4 "$RATE" "$mtu"
		dpdk_switch
		DAEMON_OPTIONS=$2 bound_rows "dpdk-$1" "$mtu" 256
		links_down
	done
}

part_dpdk() {
	echo
	echo "## Time against the bound with dpdk (net_af_packet): 4 workers, random overlap"
	bound_head
	dpdk_rows packet "--datapath dpdk --device eth0" 3498 1500
	echo
	echo "## The same with net_af_xdp"
	bound_head
	huge_need 300
	WINNOW_EAL="--in-memory --no-pci --no-telemetry --vdev=net_af_xdp0,iface=eth0,xdp_prog=$build/ebpf/redirect.bpf.o" \
		dpdk_rows xdp "--datapath dpdk --device eth0" 1500 # its frames are of 2 KB
	huge_back
}
