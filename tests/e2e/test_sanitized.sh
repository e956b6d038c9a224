#!/usr/bin/env bash
# The unit tests and some seeds of the simulation with the address and undefined-behaviour sanitizers; two threads in one
# communicator with the thread sanitizer.
# release: it is a build of its own
# no-sanitizers: it has them
# aside: it compiles
. "$(dirname "$0")/lib.sh"
san=$BUILD/san-address-undefined
make --no-print-directory -j2 SAN=address,undefined CFLAGS="-O1 -g1" check-unit >"$tmp/out" 2>&1 || fail "$(grep -v '^ok' "$tmp/out" | tail -n 40)"
tail -n 1 "$tmp/out" | seen -E '^[1-9][0-9]+ passed, 0 failed, ' || fail "$(tail -n 20 "$tmp/out")"
make --no-print-directory -j2 SAN=address,undefined CFLAGS="-O1 -g1" "$san/tests/sim/sim" >"$tmp/out" 2>&1 || fail "$(tail -n 20 "$tmp/out")"
"$san/tests/sim/sim" 1 40 >"$tmp/out" 2>&1 || fail "$(tail -n 40 "$tmp/out")"
make --no-print-directory -j2 SAN=thread CFLAGS="-O1 -g1" "$BUILD/san-thread/tests/e2e/pairs" >"$tmp/out" 2>&1 || fail "$(tail -n 20 "$tmp/out")"
winnowd --insecure-no-key
export TSAN_OPTIONS=halt_on_error=1:suppressions=$PWD/tests/thread.supp
WINNOW_AGGREGATORS=$HOST:$PORT WINNOW_INSECURE_NO_KEY=1 timeout 200 "$BUILD/san-thread/tests/e2e/pairs" >"$tmp/out" 2>&1 || fail "$(tail -n 60 "$tmp/out")"
