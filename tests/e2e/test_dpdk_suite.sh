#!/usr/bin/env bash
# Other tests again, over DPDK's packet socket: namespaces, with one thread, and more threads than the port has queues; lost,
# doubled and reordered datagrams through a proxy; deaths; garbage.
# release: another data path
# no-sanitizers: the same code as in the tests that it runs
set -euo pipefail
cd "$(dirname "$0")"
BUILD=${BUILD:-build}
if [ ! -e "../../$BUILD/winnow-dpdk.so" ]; then
	echo "built without DPDK"
	exit 77
fi
if [ "$(id -u)" != 0 ] || ! unshare -n true 2>/dev/null; then
	echo "needs root and network namespaces"
	exit 77
fi
export WINNOWD_OPTIONS="--datapath dpdk --device eth0"
./test_net.sh
export TWO_HOSTS=1
for test in chaos deaths garbage; do
	echo "# test_$test.sh"
	./test_$test.sh
done
