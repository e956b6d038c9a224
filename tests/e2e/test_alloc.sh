#!/usr/bin/env bash
# no-sanitizers: they replace malloc
# The data threads of winnowd allocate nothing: malloc is counted by thread while jobs of all kinds run, with loss.
. "$(dirname "$0")/lib.sh"
gcc -shared -fPIC -O2 -o "$tmp/count_malloc.so" tests/e2e/count_malloc.c -ldl || fail "count_malloc.c does not compile"
PORT=$(free_port)
LD_PRELOAD=$tmp/count_malloc.so "$BUILD/winnowd" --listen "127.0.0.1:$PORT" --insecure-no-key --threads 2 2>"$tmp/winnowd.log" &
DAEMON=$!
pids+=("$DAEMON")
wait_port 127.0.0.1 "$PORT" || fail "winnowd does not listen"
for options in "--size 4K,5M --density 1,0.1" "--size 5M --dtype f16 --op max" "--size 5M --wire fixed32"; do
	for rank in 0 1; do
		# shellcheck disable=SC2086 # a list of options
		start r$rank bench --insecure-no-key --rank $rank --world 2 --check --iters 5 $options
	done
	for rank in 0 1; do expect r$rank 60 0; done
	rm -f "$tmp"/r?.status
done
kill -TERM $DAEMON
wait $DAEMON || fail "winnowd ended with status $?"
grep allocations "$tmp/winnowd.log"
grep -qE 'data threads 0, others [1-9]' "$tmp/winnowd.log" || fail "a data thread allocates"
