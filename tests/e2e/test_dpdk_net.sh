#!/usr/bin/env bash
# test_net.sh over DPDK's packet socket: one thread, and more threads than the port has queues.
# release: another data path
# no-sanitizers: the same code as in the test that it runs
. "$(dirname "$0")/lib.sh"
need_dpdk
WINNOWD_OPTIONS="--datapath dpdk --device eth0" tests/e2e/test_net.sh
