#!/usr/bin/env bash
# release: it starts hundreds of jobs
# no-sanitizers: they replace malloc
# Memory that is not there, at a sample of all moments, whoever asks: every process of the job ends in time and in order.
. "$(dirname "$0")/lib.sh"
gcc -shared -fPIC -O2 -o "$tmp/fail.so" tests/e2e/fail_malloc.c || fail "fail_malloc.c does not compile"
(umask 077 && "$BUILD/winnow" key >"$tmp/key") || fail "no key"
/usr/bin/python3 tests/e2e/sweep.py "$BUILD" "$tmp" 97 11 || fail "see above"
