#!/usr/bin/env bash
# Other tests again, with the XDP fast path beneath winnowd: namespaces in native and generic mode, workers that die or
# disagree and garbage in one of them, and lost, doubled and reordered datagrams through a proxy on loopback.
# release: another data path
# no-sanitizers: the same code as in the tests that it runs
set -euo pipefail
cd "$(dirname "$0")"
if [ "$(id -u)" != 0 ] || ! unshare -n true 2>/dev/null; then
	echo "needs root and network namespaces"
	exit 77
fi
# What the other tests do on loopback, over a veth whose other end is in a namespace with winnowd.
ns=wt$$-suite
trap 'ip netns del $ns 2>/dev/null || true' EXIT
# shellcheck disable=SC2016 # the inner shell's own arguments
over_veth() { # mode, tests..
	local mode=$1 test
	shift
	for test; do
		echo "# $test, $mode"
		ip netns add $ns
		HOST=10.77.0.101 INSIDE="ip netns exec $ns" \
			WINNOWD_OPTIONS="--datapath xdp --device eth0 --xdp-mode $mode" unshare -n bash -euc '
			cd ../..
			ip link add wire type veth peer name eth0 netns "$0"
			ip addr add 10.77.0.1/24 dev wire
			ip -n "$0" addr add 10.77.0.101/24 dev eth0
			ip link set wire up
			ip link set lo up
			ip -n "$0" link set lo up
			ip -n "$0" link set eth0 up
			# Native XDP_TX on a veth arrives only if the other end has a program, too.
			ip link set dev wire xdp obj "${BUILD:-build}/tests/e2e/pass.bpf.o" sec xdp
			ethtool -K wire tx-udp-segmentation off gro on
			exec "tests/e2e/test_$1.sh"' $ns "$test"
		ip netns del $ns
	done
}
over_veth native mismatch deaths
over_veth generic garbage
for mode in native generic; do
	echo "# namespaces, $mode"
	WINNOWD_OPTIONS="--datapath xdp --device eth0 --xdp-mode $mode" ./test_net.sh
done
echo "# a proxy on loopback, generic"
export WINNOWD_OPTIONS="--datapath xdp --device lo --xdp-mode generic --payload-max 3470" XDP_METRICS=127.0.0.1:9555
unshare -n sh -c 'ip link set lo up && exec ./test_chaos.sh'
