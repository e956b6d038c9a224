#!/usr/bin/env bash
# bench.sh BUILD [PART..] - all measurements of docs/BENCHMARKS.md, in one run: bound peers loss latency bitmap train
# colocated levels share busy cost seal node nic reply xdp lcore idle dpdk; and models, if it is named, since it takes long
#
# Prints one table a part and keeps the raw numbers in BUILD/bench/*.json. Needs root for network namespaces.
# SIZE, ITERS, ROUNDS and RATE shorten or stretch it; of train STEPS and WORKERS="2 4".
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$1
shift
parts=${*:-bound peers loss latency bitmap train colocated levels share busy cost seal node nic reply xdp lcore idle dpdk}
SIZE=${SIZE:-100M} ITERS=${ITERS:-5} RATE=${RATE:-1gbit} RATE_BITS=${RATE_BITS:-1G}
bytes=$(numfmt --from=iec "$SIZE")
raw=$build/bench
# Nobody else uses these links, but for what share.sh measures: it says otherwise.
export WINNOW_NETWORK=${WINNOW_NETWORK:-private}
mkdir -p "$raw"
. tests/bench/links.sh
. tests/bench/xdp.sh
. tests/bench/dpdk.sh
. tests/bench/colocated.sh
. tests/bench/levels.sh
. tests/bench/share.sh
. tests/bench/busy.sh
. tests/bench/node.sh
. tests/bench/seal.sh
pids=()
finish() {
	local pid
	for pid in "${pids[@]:-}"; do [ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true; done
	umount "$raw/bpf" 2>/dev/null || true
	links_down
	huge_back
}
trap finish EXIT
trap 'exit 1' INT TERM

[ "$(id -u)" = 0 ] || {
	echo "bench: shaped links are network namespaces, which need root: sudo make bench" >&2
	exit 1
}
# bash's wait tells the status of the last alone.
all_end() { # pid..
	local pid
	for pid; do wait "$pid" || { echo "bench: a process of it ended with status $?" >&2; exit 1; }; done
}
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
stop() { # pid..: daemons, which end with status 0
	kill "$@"
	all_end "$@"
}

# On a shared host: an operation that waits for a CPU that another machine has is slow, whatever the code.
cpu_ticks() { awk '/^cpu / { for (i = 2; i <= 9; i++) all += $i; print all, $9 }' /proc/stat; }
read -r ticks_before stolen_before <<<"$(cpu_ticks)"
stolen() {
	cpu_ticks | awk -v all="$ticks_before" -v stolen="$stolen_before" '{ printf "%.1f %%\n", 100 * ($2 - stolen) / ($1 - all + 1) }'
}

value() { # file field
	python3 -c 'import json, sys
v = json.load(open(sys.argv[1]))
for k in sys.argv[2].split("."): v = v[k]
print(v)' "$1" "$2"
}

# ---- systems: each prints the file that holds its JSON ----

# A winnowd on a host of links.sh: sets `daemon`.
serve() { # host address options..
	ip netns exec "$net-$1" "$build/winnowd" --listen "$2" --threads 1 --log warn "${@:3}" &
	daemon=$!
	pids+=("$daemon")
}

# `bench` on hosts w0..: rank 0 says the JSON.
workers() { # how many, out-file, addresses of aggregators, options..
	local n=$1 out=$2 i others=()
	set -- --aggregators "$3" --world "$n" "${@:4}"
	for ((i = 1; i < n; i++)); do
		on w$i "$build/winnow" bench --rank $i "$@" >/dev/null &
		others+=($!)
	done
	on w0 "$build/winnow" bench --rank 0 --json "$@" >"$out"
	all_end "${others[@]}"
}

winnow() { # workers out-file options..
	local daemon
	# shellcheck disable=SC2086 # a list
	serve a0 10.77.0.101:5555 --insecure-no-key ${DAEMON_OPTIONS:-}
	workers "$1" "$2" 10.77.0.101:5555 --insecure-no-key --iters "$ITERS" --warmup 1 --check --rate "$RATE_BITS" --aggregator-rate 1T "${@:3}"
	stop "$daemon"
}

mpi() { # workers out-file mode density overlap
	local hosts i
	rm -f "$2" # a failure must not leave an earlier run's numbers
	hosts=$(for ((i = 1; i <= $1; i++)); do printf '10.77.0.%d,' "$i"; done)
	MPI_NET=$net OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 on w0 unshare --uts sh -c "hostname w0
		exec mpirun -n $1 -H ${hosts%,} --mca plm_rsh_agent $PWD/tests/bench/mpi_agent.sh --mca btl self,tcp \
		--mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 --bind-to none \
		--mca mpi_yield_when_idle 1 --mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 4 \
		$PWD/$build/tests/bench/mpi_bench $3 $SIZE $4 $5 $ITERS" </dev/null >"$2" 2>"$2.log"
}

gloo() { # workers out-file bytes iterations: on hosts w0.., or with HERE=yes on this machine
	local i others=() out
	for ((i = 0; i < $1; i++)); do
		local host=(ip netns exec "$net-w$i") at=10.77.0.1 device=eth0
		[ -z "${HERE:-}" ] || host=(env) at=127.0.0.1 device=lo
		out=/dev/null
		[ $i != 0 ] || out=$2
		RANK=$i WORLD_SIZE=$1 MASTER_ADDR=$at MASTER_PORT=29500 GLOO_SOCKET_IFNAME=$device \
			"${host[@]}" /usr/bin/python3 tests/bench/gloo_bench.py "$3" "$4" >"$out" &
		others+=($!)
	done
	all_end "${others[@]}"
}

# ---- parts ----

conditions() {
	echo "# $(grep -m1 'model name' /proc/cpuinfo | sed 's/.*: //'), $(nproc) CPUs, Linux $(uname -r), $(gcc --version | head -n1)"
	echo "# $SIZE of f32, block 256, links of $RATE both ways in network namespaces, one aggregator with an unshaped port, median of $ITERS"
	echo "# load before: $(cut -d' ' -f1-3 /proc/loadavg)"
}

bound_head() {
	printf '%6s %8s %7s %10s %10s %6s %9s %9s %6s\n' MTU density union 'bound (s)' 'winnow (s)' ratio 'sent (MB)' 'recv (MB)' retx
}

bound_row() { # file mtu
	python3 - "$1" "$2" <<'P'
import json, sys
r = json.load(open(sys.argv[1]))
t = r["time_us"]["median"]
print("%6s %8.3f %7.3f %10.4f %10.4f %6.3f %9.2f %9.2f %6d" % (sys.argv[2], r["density"], r["union"], r["bound_us"] / 1e6, t / 1e6,
      t / r["bound_us"], r["sent_bytes"] / 1e6, r["received_bytes"] / 1e6, r["retransmits"]))
P
}

bound_rows() { # name mtu block: of 4 workers on the links that are up
	local d f
	for d in 1 0.5 0.1 0.01; do
		f=$raw/$1-$2-$d.json
		winnow 4 "$f" --size "$SIZE" --density $d --block "$3"
		bound_row "$f" "$2"
	done
}

part_bound() {
	echo
	echo "## Time against the bound: 4 workers, random overlap"
	bound_head
	local mtu
	for mtu in 3498 1500; do
		links_up 4 "$RATE" $mtu
		bound_rows bound $mtu 256
		links_down
	done
}

real_bits() {
	find build/demo -name '*.0.bits' 2>/dev/null | sed 's/\.0\.bits$//' | sort
}

peer_rows() { # workers overlap densities..
	local n=$1 overlap=$2 d name
	shift 2
	for d in "$@"; do
		name=$n-$(basename "${overlap#file:}" .%r.bits)-$d
		winnow "$n" "$raw/winnow-$name.json" --size "$SIZE" --density "$d" --overlap "$overlap"
		mpi "$n" "$raw/blocks-$name.json" blocks "$d" "$overlap" || echo "mpi blocks failed: see $raw/blocks-$name.json.log" >&2
		python3 tests/bench/peer_row.py "$raw" "$n" "$name"
	done
}

part_peers() {
	echo
	echo "## Time in seconds against Gloo's ring, Open MPI's ring and an allgather of the non-zero blocks over MPI; MTU 1500"
	printf '%3s %-16s %8s %7s %8s %8s %8s %8s %8s %9s %9s\n' N overlap density union bound winnow gloo mpiring blocks 'x ring' 'x blocks'
	local n model
	for n in 2 4 8; do
		links_up $n "$RATE" 1500
		gloo $n "$raw/gloo-$n.json" "$bytes" "$ITERS"
		mpi $n "$raw/ring-$n.json" ring 1 random || echo "mpi ring failed: see $raw/ring-$n.json.log" >&2
		peer_rows $n random 1 0.5 0.1 0.01
		peer_rows $n all 0.1 0.01
		if [ $n -le 4 ]; then
			for model in $(real_bits); do peer_rows $n "file:$model.%r.bits" 1; done
		fi
		links_down
	done
	/usr/bin/python3 tests/bench/plot.py "$raw" "$raw/peers.svg" && echo "# drawn: $raw/peers.svg"
}

part_loss() {
	echo
	echo "## Random loss of UDP packets at every input: density 0.1, 4 workers"
	printf '%6s %8s %10s %14s %6s %7s\n' MTU 'loss (%)' 'winnow (s)' 'x without loss' retx wrong
	local mtu loss base f
	for mtu in 3498 1500; do
		links_up 4 "$RATE" $mtu
		base=
		for loss in 0 0.1 1 5; do
			links_loss $loss
			f=$raw/loss-$mtu-$loss.json
			winnow 4 "$f" --size "$SIZE" --density 0.1
			base=${base:-$(value "$f" time_us.median)}
			printf '%6s %8s %10.4f %14.3f %6.0f %7s\n' $mtu $loss "$(awk "BEGIN { print $(value "$f" time_us.median) / 1e6 }")" \
				"$(awk "BEGIN { print $(value "$f" time_us.median) / $base }")" "$(value "$f" retransmits)" "$(value "$f" errors)"
		done
		links_down
	done
}

part_latency() {
	echo
	echo "## Small operations on loopback: 4 workers and the aggregator on this machine, time in us"
	printf '%10s %10s %10s %10s\n' size winnow gloo 'x gloo'
	local size f g
	for size in 4096 16384 65536 1048576; do
		f=$raw/latency-$size.json g=$raw/latency-gloo-$size.json
		"$build/winnow" bench --local 4 --insecure-no-key --size $size --density 1 --iters 1000 --warmup 100 --check --json >"$f"
		HERE=yes gloo 4 "$g" $size 1000
		[ "$(value "$g" errors)" = 0 ] || { echo "bench: gloo's results are wrong" >&2; exit 1; }
		printf '%10s %10.1f %10.1f %10.2f\n' $size "$(value "$f" time_us.median)" "$(value "$g" time_us)" \
			"$(awk "BEGIN { print $(value "$g" time_us) / $(value "$f" time_us.median) }")"
	done
}

part_bitmap() {
	echo
	echo "## Finding, packing and adding blocks"
	"$build/tests/bench/bench_bitmap"
}

conditions
part_train() {
	printf '\n## Training steps\n\n| model | N | Gloo: ms | attach(): ms | group: ms | x attach() | x group | Gloo: sent, received (MB) | attach() | group |\n'
	printf '|---|---|---|---|---|---|---|---|---|---|\n'
	# shellcheck disable=SC2086 # a list
	tests/bench/train.sh "$build" ${WORKERS:-} || [ $? = 77 ] # no newest torch: it has said why
}

part_models() {
	printf '\n## Compression and local steps: five models\n\n'
	tests/bench/models.sh "$build"
}

for part in $parts; do "part_$part"; done
echo
echo "# load after: $(cut -d' ' -f1-3 /proc/loadavg); of the CPUs' time other virtual machines had $(stolen)"
