#!/usr/bin/env bash
# Two threads in one communicator with the thread sanitizer. test_debian13.sh has the other sanitizers.
# release: it is a build of its own
# no-sanitizers: it has them
# aside: it compiles
. "$(dirname "$0")/lib.sh"
make --no-print-directory -j2 SAN=thread CFLAGS="-O1 -g1" "$BUILD/san-thread/tests/e2e/pairs" >"$tmp/out" 2>&1 || fail "$(tail -n 20 "$tmp/out")"
winnowd --insecure-no-key
export TSAN_OPTIONS=halt_on_error=1:suppressions=$PWD/tests/thread.supp
WINNOW_AGGREGATORS=$HOST:$PORT WINNOW_INSECURE_NO_KEY=1 timeout 200 "$BUILD/san-thread/tests/e2e/pairs" >"$tmp/out" 2>&1 || fail "$(tail -n 60 "$tmp/out")"
