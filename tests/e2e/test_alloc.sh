#!/usr/bin/env bash
# no-sanitizers: they replace malloc
# Once a job runs, nothing is allocated for its data: neither by winnowd's data threads nor by a worker, with and without loss.
. "$(dirname "$0")/lib.sh"
gcc -shared -fPIC -O2 -o "$tmp/count.so" tests/e2e/count_malloc.c || fail "count_malloc.c does not compile"
counted() { # log: the counts of data threads, communicators, the main thread and others
	sed -nE 's/^allocations: data threads ([0-9]+), communicators ([0-9]+), main ([0-9]+), others ([0-9]+)$/\1 \2 \3 \4/p' "$1"
}

PORT=$(free_port)
LD_PRELOAD=$tmp/count.so "$BUILD/winnowd" --listen "127.0.0.1:$PORT" --insecure-no-key --threads 2 2>"$tmp/winnowd.log" &
DAEMON=$!
pids+=("$DAEMON")
wait_port 127.0.0.1 "$PORT" || fail "winnowd does not listen"
direct=$PORT
chaos "127.0.0.1:$direct" 1 3 1 3
lossy=$PORT

# Joining and leaving take a control message more or less, of 15 allocations each; one an operation would be 196 at least.
MESSAGES=100
REQUESTS=2 # a worker makes a second one where its thread still has the first when the next operation begins
workers() { # iterations, bench's options..: sets `communicators` and `main`, what both workers together allocated
	local rank data_threads one own other
	communicators=0 main=0
	rm -f "$tmp"/r?.status
	for rank in 0 1; do
		# Heartbeats, which are control messages, allocate: none is due in such a time.
		start r$rank env LD_PRELOAD="$tmp/count.so" "$BUILD/winnow" bench --aggregators "127.0.0.1:$PORT" --insecure-no-key --rank $rank --world 2 \
			--check --silence 300s --iters "$@"
	done
	for rank in 0 1; do
		expect r$rank 60 0
		read -r data_threads one own other < <(counted "$tmp/r$rank.err")
		communicators=$((communicators + one)) main=$((main + own))
		[ "$data_threads $other" = "0 0" ] || fail "a worker has threads of other names: $(cat "$tmp/r$rank.err")"
	done
}

for PORT in $direct $lossy; do
	for options in "--size 4K,1M --density 1,0.1" "--size 1M --dtype f16 --op max" "--size 1M --wire fixed32"; do
		# shellcheck disable=SC2086 # a list of options
		workers 2 $options
		((communicators > 0 && main > 0)) || fail "nothing was counted"
		few="$communicators and $main" most=$((communicators + MESSAGES)) most_main=$((main + REQUESTS))
		# shellcheck disable=SC2086
		workers 100 $options
		((communicators <= most && main <= most_main)) ||
			fail "$options: with 2 iterations the communicators allocate $few times (in their thread, in the caller's), with 100 $communicators and $main"
	done
done
chaos_ends
kill -TERM $DAEMON
wait $DAEMON || fail "winnowd ended with status $?"
grep allocations "$tmp/winnowd.log"
read -r data _ < <(counted "$tmp/winnowd.log")
[ "$data" = 0 ] || fail "a data thread allocates"
