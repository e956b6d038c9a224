# shellcheck shell=bash
# busy.sh - part of bench.sh: hosts whose CPUs are busy, and the CPU time that an operation takes. Sourced by bench.sh
# shellcheck disable=SC2154 # bench.sh sets them

# Processes that take all the CPU time they can get, as data loaders and models do: sets `spinning`.
busy_spin() { # how many
	local i
	spinning=()
	for ((i = 0; i < $1; i++)); do
		(while :; do :; done) &
		spinning+=("$!")
	done
	[ "$1" = 0 ] || pids+=("${spinning[@]}")
}

busy_rest() {
	[ ${#spinning[@]} = 0 ] || kill "${spinning[@]}"
	[ ${#spinning[@]} = 0 ] || wait "${spinning[@]}" 2>/dev/null || true
}

# Ways to run take turns, so that what else this machine does is shared by all of them.
busy_round() { # spinning, round
	local d network name
	for d in 1 0.1; do
		for network in shared private; do
			name=$raw/busy-$1-$d-$network.$2.json
			WINNOW_NETWORK=$network winnow 4 "$name" --size "$busy_size" --density $d --block 256
		done
	done
	gloo 4 "$raw/busy-$1-gloo.$2.json" "$(numfmt --from=iec "$busy_size")" "$ITERS"
}

busy_row() { # spinning
	python3 - "$raw" "$1" <<'P'
import json, pathlib, statistics, sys
raw, spinning = pathlib.Path(sys.argv[1]), sys.argv[2]
def runs(name):
    found = [json.loads(f.read_text()) for f in raw.glob(f"busy-{spinning}-{name}.*.json")]
    if any(r["errors"] for r in found):
        sys.exit(f"bench: results of {name} beside {spinning} processes are wrong")
    return found
def ratios(name):
    each = sorted(r["time_us"]["median"] / r["bound_us"] for r in runs(name))
    return f"{statistics.median(each):6.2f} ({each[0]:.2f} to {each[-1]:.2f})"
def seconds(name, field):
    return statistics.median(field(r) for r in runs(name)) / 1e6
print(f"{spinning:>8}", *(f"{ratios(name):>22}" for name in ("1-shared", "1-private", "0.1-shared", "0.1-private")),
      f"{seconds('gloo', lambda r: r['time_us']):8.3f} {seconds('1-shared', lambda r: r['time_us']['median']):8.3f}")
P
}

part_busy() {
	local spinning busy_size=${BUSY_SIZE:-50M} count round
	echo
	echo "## Beside processes that take all CPU time: 4 workers, $busy_size of f32, MTU 1500, times the bound; median, least and most of ${ROUNDS:-5} runs"
	printf '%8s %22s %22s %22s %22s %8s %8s\n' spinning 'd = 1, shared' private 'd = 0.1, shared' private 'Gloo, s' 'd = 1, s'
	rm -f "$raw"/busy-*
	links_up 4 "$RATE" 1500
	for count in ${SPINNING:-0 2 4}; do
		for ((round = 0; round < ${ROUNDS:-5}; round++)); do
			busy_spin "$count"
			busy_round "$count" "$round"
			busy_rest
		done
		busy_row "$count"
	done
	links_down
}

# ---- CPU time ----

daemon_cpu() { # seconds of all threads of `daemon`
	cat "/proc/$daemon/task/"*/schedstat | awk '{ ns += $1 } END { print ns / 1e9 }'
}

# Milliseconds of one worker and of winnowd for an operation; winnowd's warm-up is one more.
cpu_row() { # density
	local daemon before after f=$raw/cpu-$1.json
	serve a0 10.77.0.101:5555 --insecure-no-key --metrics no --log error
	before=$(daemon_cpu)
	workers 4 "$f" 10.77.0.101:5555 --insecure-no-key --iters "$ITERS" --warmup 1 --size "$SIZE" --density "$1" --block 256
	after=$(daemon_cpu)
	stop "$daemon"
	printf ' %8.1f %8.1f' "$(awk "BEGIN { print $(value "$f" cpu_us) / 1e3 }")" \
		"$(awk "BEGIN { print ($after - $before) * 1e3 / ($ITERS + 1) }")"
}

part_cost() {
	local link network d
	echo
	echo "## CPU time of an operation in ms, user and system: 4 workers, $SIZE of f32, MTU 1500; a worker, winnowd"
	printf '%8s %8s %17s %17s %17s %8s\n' link network 'd = 1' 'd = 0.1' 'd = 0.01' Gloo
	for link in ${COST_LINKS:-1gbit 100mbit}; do
		links_up 4 "$link" 1500
		gloo 4 "$raw/cpu-gloo.json" "$bytes" "$ITERS"
		for network in shared private; do
			printf '%8s %8s' "$link" "$network"
			for d in 1 0.1 0.01; do WINNOW_NETWORK=$network cpu_row $d; done
			printf ' %8.1f\n' "$(awk "BEGIN { print $(value "$raw/cpu-gloo.json" cpu_us) / 1e3 }")"
		done
		links_down
	done
	echo "# reading the tensor once, clearing the result once, and both: $("$build/tests/bench/bench_floor" "$bytes") ms"
	xdp_costs
}
