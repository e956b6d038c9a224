#!/usr/bin/env bash
# winnow.jax, where Python has jax: Debian's has not, so PYTHON=venv/bin/python tests/e2e/test_jax.sh
# no-sanitizers: Debian's python is not built with them
. "$(dirname "$0")/lib.sh"
. tests/e2e/python.sh
need_modules numpy torch jax
winnowd --insecure-no-key --log error
export WINNOW_AGGREGATORS=$HOST:$PORT
cd tests/python || exit 1
$python -m unittest -v test_jax || exit 1
kill -0 "$DAEMON" || fail "winnowd ended meanwhile"
