#!/usr/bin/env bash
# The dpdk datapath used wrongly: one clear line and an exit status, from winnowd and from a worker.
. "$(dirname "$0")/lib.sh"
need_dpdk
hosts_up 1 1 1500
serve() { timeout 20 ip netns exec "$net-a0" "$BUILD/winnowd" --insecure-no-key --listen 10.77.0.101:5555 --datapath dpdk "$@"; }
work() { timeout 20 ip netns exec "$net-w0" "$BUILD/winnow" bench --aggregators 10.77.0.101:5555 --insecure-no-key --size 4K --datapath dpdk "$@"; }
nohuge="--no-shconf --no-huge --no-pci --no-telemetry -m 192"

refuses 2 'needs --device IFACE, or --eal' serve
refuses 1 "there is no interface 'nosuch0'; other ports need --eal" serve --device nosuch0
refuses 1 'DPDK has no port eth9' serve --device eth9 --eal "$nohuge --vdev=net_af_packet0,iface=eth0"
refuses 1 'DPDK does not start: .*' serve --eal "--no-such-argument"
refuses 1 'DPDK does not start: .*' serve --eal "$nohuge --vdev=net_nothing0"
refuses 1 'DPDK has no port' serve --eal "$nohuge"
refuses 1 'memory' serve --device eth0 --eal "--no-shconf --no-huge --no-pci --no-telemetry -m 8 --vdev=net_af_packet0,iface=eth0"
refuses 2 "data-address: '10.0.0.1/33' is not ADDR or ADDR/BITS" serve --device eth0 --data-address 10.0.0.1/33
refuses 2 "gateway: 'there' is not ADDR" serve --device eth0 --gateway there
refuses 1 'eal has more than' serve --eal "$(seq -s ' ' 100)"
refuses 1 "there is no interface 'nosuch0'" work --device nosuch0
refuses 1 'needs --device IFACE, or --eal|device' work
refuses 1 "'10.0.0.1/33' is not ADDR or ADDR/BITS" work --device eth0 --data-address 10.0.0.1/33

# Two of them on one port.
winnowd_inside 0 --insecure-no-key --datapath dpdk --device eth0
refuses 1 'cannot bind|in use' serve --device eth0
winnowd_stop
# Another program has it.
inside a0 python3 -c 'import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("10.77.0.101", 5555))
time.sleep(60)' &
pids+=($!)
sleep 0.5
refuses 1 'cannot bind UDP port 5555: Address already in use' serve --device eth0

# Without rights.
chmod 755 "$tmp"
if id nobody >/dev/null 2>&1; then
	refuses 1 'port|permitted|Permission|socket' ip netns exec "$net-a0" setpriv --reuid nobody --clear-groups \
		"$BUILD/winnowd" --insecure-no-key --listen 10.77.0.101:5557 --datapath dpdk --device eth0
fi
# Built without DPDK, or installed without the object.
mkdir "$tmp/bare"
cp "$BUILD/winnowd" "$BUILD/winnow" "$tmp/bare/"
cp -P "$BUILD"/libwinnow.so* "$tmp/bare/"
refuses 2 "no datapath 'dpdk' in this build" "$tmp/bare/winnowd" --insecure-no-key --datapath dpdk --device lo
refuses 1 "no datapath 'dpdk' in this build" "$tmp/bare/winnow" bench --aggregators 127.0.0.1:1 --insecure-no-key --datapath dpdk --device lo
"$tmp/bare/winnowd" --version | seen 'built without dpdk' || fail "--version names what is not there"
"$BUILD/winnowd" --version | seen 'dpdk with DPDK' || fail "--version does not name dpdk"
# What is there but is something else.
echo "no object" >"$tmp/bare/winnow-dpdk.so"
refuses 2 'cannot open winnow-dpdk.so' "$tmp/bare/winnowd" --insecure-no-key --datapath dpdk --device lo
# Who uses sockets loads none of it.
winnowd --insecure-no-key
grep -q librte_ "/proc/$DAEMON/maps" && fail "DPDK's libraries are loaded for --datapath udp"
echo "refused"
