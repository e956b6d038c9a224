#!/usr/bin/env bash
# torch's own tests of process groups, of the newest torch that PyPI has, over backend "winnow" with 2 and with 4 ranks. WORLDS=4 TESTS="test_x" for some.
# no-sanitizers: PyPI's torch is not built with them
# release: it downloads PyTorch, and takes minutes
. "$(dirname "$0")/lib.sh"
. tests/e2e/newest_torch.sh
pip_install expecttest 2>"$tmp/pip.log" || need_modules expecttest
winnowd --insecure-no-key --threads 2
export WINNOW_AGGREGATORS=$HOST:$PORT TMPDIR=$tmp
for world in ${WORLDS:-2 4}; do
	# shellcheck disable=SC2086 # a list
	$python tests/python/torch_suite.py "$world" ${TESTS:-} || fail "$world ranks"
done
kill -0 "$DAEMON" || fail "winnowd ended meanwhile"
