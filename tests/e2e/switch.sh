# shellcheck shell=bash
# shellcheck disable=SC2154 # net is its user's: the switch is the bridge in the namespace $net-sw
# switch.sh - what is true of each switch, in tests and benchmarks

# If bridged packets pass the kernel's firewall, it drops damaged ones and reassembles fragments, and takes time.
switch_passes_all() {
	local name
	for name in iptables ip6tables arptables; do
		ip netns exec "$net-sw" sh -c "[ ! -e /proc/sys/net/bridge/bridge-nf-call-$name ] || echo 0 >/proc/sys/net/bridge/bridge-nf-call-$name"
	done
}
