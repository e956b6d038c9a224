#!/usr/bin/env bash
# All of tests/python with Debian's python, against one winnowd on a free loopback port.
# no-sanitizers: Debian's python and torch are not built with them
# late: it calls make
. "$(dirname "$0")/lib.sh"
. tests/e2e/python.sh
need_modules numpy torch
winnowd --insecure-no-key --threads 3 --log error
export WINNOW_AGGREGATORS=$HOST:$PORT
$python -m unittest discover -s tests/python -t tests/python -v || exit 1
kill -0 "$DAEMON" || fail "winnowd ended meanwhile"
