#!/usr/bin/env bash
# release: it starts hundreds of jobs
# no-sanitizers: they replace malloc
# The system refuses memory, at a sample of all moments, each thread and each descriptor: every process of the job ends in
# time, in order and with the reason.
. "$(dirname "$0")/lib.sh"
gcc -shared -fPIC -O2 -o "$tmp/fail.so" tests/e2e/refuse.c || fail "refuse.c does not compile"
said=$(LD_PRELOAD=$tmp/fail.so FAIL_WHAT=threads FAIL_AT=1 "$BUILD/winnow" status 127.0.0.1:1)
seen 'unreachable: cannot start a thread: Resource temporarily unavailable' <<<"$said" || fail "winnow status: $said"
(umask 077 && "$BUILD/winnow" key >"$tmp/key") || fail "no key"
/usr/bin/python3 tests/e2e/sweep.py "$BUILD" "$tmp" 97 5 || fail "see above"
