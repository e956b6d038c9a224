#!/usr/bin/env bash
# Each call of a communicator beside each other one, in two threads, and aborts and failures at odd moments.
# waits: for little, with limits of 20 s
. "$(dirname "$0")/lib.sh"
winnowd --insecure-no-key
WINNOW_AGGREGATORS=$HOST:$PORT WINNOW_INSECURE_NO_KEY=1 timeout 200 "$BUILD/tests/e2e/pairs" || fail "calls get in each other's way"
