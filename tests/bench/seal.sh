# shellcheck shell=bash
# seal.sh - part of bench.sh: what seals cost in user space
#
# CPU time of winnowd's one thread for a PUSH, without a key and with one, on loopback: two workers, dense f32, multicast,
# so each second PUSH makes a RESULT. They take turns, and the median of ROUNDS counts. Nothing else may run beside it.

seal_run() { # payload options-of-all..: nanoseconds a PUSH
	local payload=$1 size=200 iters=8 port daemon other before after
	shift
	port=$(free_port)
	"$build/winnowd" --listen "127.0.0.1:$port" "$@" --threads 1 --log error --metrics no >/dev/null &
	daemon=$!
	pids+=("$daemon")
	sleep 0.5
	set -- --aggregators "127.0.0.1:$port" "$@" --world 2 --size ${size}M --iters $iters --warmup 0 --density 1 --payload "$payload"
	before=$(awk '{ print $14 + $15 }' "/proc/$daemon/stat")
	"$build/winnow" bench "$@" --rank 1 >/dev/null &
	other=$!
	"$build/winnow" bench "$@" --rank 0 >/dev/null
	all_end "$other"
	after=$(awk '{ print $14 + $15 }' "/proc/$daemon/stat")
	stop "$daemon"
	awk "BEGIN { print ($after - $before) * 1e9 / $(getconf CLK_TCK) / (2 * $iters * $size * 1048576 / ($payload - 32)) }"
}

part_seal() {
	local payload key round plain sealed
	echo
	echo "## Seals"
	echo
	echo "To check one: $("$build/tests/bench/bench_seal")"
	echo
	echo "| datagrams of | winnowd's ns a PUSH, no key | with a key | PUSHes a CPU second, with / without |"
	echo "|---|---|---|---|"
	key=$raw/seal-key
	(umask 077 && "$build/winnow" key >"$key")
	for payload in 1472 8972; do
		plain=() sealed=()
		for ((round = 0; round < ${ROUNDS:-5}; round++)); do
			plain+=("$(seal_run $payload --insecure-no-key)")
			sealed+=("$(seal_run $payload --key-file "$key")")
		done
		python3 -c 'import statistics, sys
half = len(sys.argv) // 2 + 1
plain, sealed = (statistics.median(map(float, part)) for part in (sys.argv[2:half], sys.argv[half:]))
print(f"| {sys.argv[1]} bytes | {plain:.0f} | {sealed:.0f} | {plain / sealed:.2f} |")' $payload "${plain[@]}" "${sealed[@]}"
	done
	rm "$key"
}
