#!/usr/bin/env bash
# All of tests/python, or PYTHON_TESTS=async of them, with Debian's python, against one winnowd on a free loopback port. None may be skipped: nobody would see it.
# no-sanitizers: Debian's python and torch are not built with them
# long: all of the package
. "$(dirname "$0")/lib.sh"
. tests/e2e/python.sh
need_modules numpy torch
winnowd --insecure-no-key --threads 3
export WINNOW_AGGREGATORS=$HOST:$PORT
cd tests/python || exit 1
# shellcheck disable=SC2086 # a pattern
mapfile -t modules < <(basename -s .py test_${PYTHON_TESTS:-*}.py | grep -vE '^test_(jax|local_steps|newest_.*)$') # test_jax.sh's, test_torch.sh's
run_modules 5 "${modules[@]}" # they wait more than they compute
kill -0 "$DAEMON" || fail "winnowd ended meanwhile"
