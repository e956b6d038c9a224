#!/usr/bin/env bash
# Other tests again, with the XDP fast path beneath winnowd: namespaces in native and generic mode, and lost, doubled and
# reordered datagrams through a proxy on loopback.
# no-sanitizers: the same code as in the tests that it runs
set -euo pipefail
cd "$(dirname "$0")"
if [ "$(id -u)" != 0 ] || ! unshare -n true 2>/dev/null; then
	echo "needs root and network namespaces"
	exit 77
fi
for mode in native generic; do
	echo "# namespaces, $mode"
	WINNOWD_OPTIONS="--datapath xdp --device eth0 --xdp-mode $mode" ./test_net.sh
done
echo "# a proxy on loopback, generic"
export WINNOWD_OPTIONS="--datapath xdp --device lo --xdp-mode generic --payload-max 3470" XDP_METRICS=127.0.0.1:9555
unshare -n sh -c 'ip link set lo up && exec ./test_chaos.sh'
