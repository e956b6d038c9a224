#!/usr/bin/env bash
# release: it starts hundreds of jobs
# no-sanitizers: they replace malloc
# The system refuses memory, at a sample of all moments, each thread and each descriptor: every process of the job ends in
# time, in order and with the reason.
. "$(dirname "$0")/lib.sh"
gcc -shared -fPIC -O2 -o "$tmp/fail.so" tests/e2e/refuse.c || fail "refuse.c does not compile"
(umask 077 && "$BUILD/winnow" key >"$tmp/key") || fail "no key"
/usr/bin/python3 tests/e2e/sweep.py "$BUILD" "$tmp" 97 5 || fail "see above"
