#!/usr/bin/env bash
# winnow.jax: two workers train with PyPI's newest jax, on the CPU.
# no-sanitizers: PyPI's packages are not built with them
# release: it downloads jax
. "$(dirname "$0")/lib.sh"
. tests/e2e/newest_torch.sh
pip_install jax 2>"$tmp/pip.log" || echo "no newer jax: $(tail -n 1 "$tmp/pip.log")"
need_modules jax
winnowd --insecure-no-key
export WINNOW_AGGREGATORS=$HOST:$PORT
cd tests/python || exit 1
run_modules 1 test_jax
kill -0 "$DAEMON" || fail "winnowd ended meanwhile"
