#!/usr/bin/env bash
# Data paths that take more than sockets, in containers: XDP generic and native, DPDK on a packet socket, on AF_XDP with huge
# pages, and on memif without any privilege. Each with the least capabilities: with one of them less it does not start.
# release: it needs images, packages or a booted system
# no-sanitizers: the images build their own
. "$(dirname "$0")/lib.sh"
. tests/e2e/podman.sh
need_dpdk
base_image
image winnowd winnowd
image winnowd winnowd:dpdk --build-arg DATAPATH=dpdk
[ "$(pod image inspect -f '{{.Size}}' winnowd:dpdk)" -lt 30000000 ] || fail "the image with DPDK is too large: what is in it?"
networks+=("$net")
pod network create "$net" >/dev/null || fail "podman network create"
bpf_profile "$tmp/seccomp.json"
mkdir -m 777 "$tmp/sockets"
hard=(--read-only --cap-drop all --security-opt no-new-privileges --log-driver k8s-file --no-healthcheck -v "$tmp/sockets:/run/winnow")

server() { # name capabilities image arg..
	local caps=()
	[ "$2" = none ] || caps=(--cap-add "$2")
	[[ $2 != *BPF* ]] || caps+=(--security-opt "seccomp=$tmp/seccomp.json")
	container "$1" "${hard[@]}" "${caps[@]}" "$3" --insecure-no-key "${@:4}"
}
needs_all() { # capabilities pattern image arg..: with one of them less it says so in a line and ends
	local cap
	for cap in ${1//,/ }; do
		server "less-$cap" "$(tr , '\n' <<<"$1" | grep -vx "$cap" | paste -sd,)" "${@:3}"
		[ "$(ended "less-$cap" 10)" = 1 ] || fail "winnowd starts without $cap: $*"
		[ "$(wc -l <"$tmp/less-$cap.err") $(grep -cE "$2" "$tmp/less-$cap.err")" = "1 1" ] || fail "without $cap winnowd says: $(cat "$tmp/less-$cap.err")"
		pod rm -f "$net-less-$cap" >/dev/null
	done
}
says() { # container pattern
	pod logs "$net-$1" >"$tmp/$1.log" 2>&1
	grep -qE "$2" "$tmp/$1.log" || fail "$1 does not say /$2/: $(cat "$tmp/$1.log")"
}
# Nobody's, and only threads of this pattern keep capabilities once it has started.
keeps() { # container pattern
	local task process
	process=$(pod inspect -f '{{.State.Pid}}' "$net-$1")
	[ "$(cat "/proc/$process/task"/*/status | grep -c '^Uid:[[:space:]]65532')" = "$(find "/proc/$process/task" -name status -path '*/task/*/status' | wc -l)" ] ||
		fail "$1: a thread is not nobody's"
	for task in "/proc/$process/task"/*; do
		grep -qE '^CapEff:[[:space:]]0+$' "$task/status" || grep -qE "$2" "$task/comm" || fail "$1: $(cat "$task/comm") keeps capabilities"
	done
}
worker() { # rank image capabilities arg..
	local caps=()
	[ "$3" = none ] || caps=(--cap-add "$3")
	container "work-$1" "${hard[@]}" "${caps[@]}" --entrypoint /usr/bin/winnow "$2" bench --insecure-no-key --rank "$1" --world 2 \
		--check --json --size 4M --density 0.2 --iters 3 "${@:4}"
}
right() { # both workers end well, with right sums
	local rank
	for rank in 0 1; do
		[ "$(ended work-$rank 60)" = 0 ] || fail "worker $rank: $(cat "$tmp/work-$rank.err")"
		[ "$(json "$tmp/work-$rank.out" checked) $(json "$tmp/work-$rank.out" errors)" = "True 0" ] || fail "worker $rank: $(cat "$tmp/work-$rank.out")"
		pod rm -f "$net-work-$rank" >/dev/null
	done
}
ends() { # container: drained, as an operator ends it
	pod stop -t 20 "$net-$1" >/dev/null 2>&1
	[ "$(ended "$1" 5)" = 0 ] || fail "$1 does not end well: $(tail -n 3 "$tmp/$1.err")"
}

# ---- XDP behind the driver, on the engine's own network ----
xdp=BPF,PERFMON,NET_ADMIN
server x0 $xdp winnowd --datapath xdp --device eth0 --xdp-mode generic
ready x0
keeps x0 '^$'
for rank in 0 1; do worker $rank winnowd none --aggregators x0:5555 --dtype i32; done
right
says x0 'job_started .*fast=yes'
ends x0

# ---- hosts of our own: a container gets a namespace, and with it an interface, as from a device plugin ----
hosts_up 2 2 3498
for host in a0 a1 w1; do whole_frames $host; done
in_ns() { network=ns:/run/netns/$net-$1 "${@:2}"; }
inside sw ip link set dev "$net-a0" xdp obj "$BUILD/tests/e2e/pass.bpf.o" sec xdp || fail "cannot attach a program"
native=(winnowd --listen 10.77.0.101:5555 --datapath xdp --device eth0 --xdp-mode native)
in_ns a0 server x1 $xdp "${native[@]}"
ready x1
says x1 'event=ready .*xdp="native"'
keeps x1 '^$'
for rank in 0 1; do in_ns w$rank worker $rank winnowd none --aggregators 10.77.0.101:5555 --dtype i32 --block 768; done
right
says x1 'job_started .*payload=3470 .*fast=yes'
ends x1
[ "$(inside a0 ip link show eth0 | grep -c xdp)" = 0 ] || fail "a program is left on the device"
in_ns a0 needs_all $xdp 'CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN' "${native[@]}"

# ---- DPDK on a packet socket; one worker has sockets, the other DPDK ----
packet=NET_RAW,NET_ADMIN,IPC_LOCK
dpdk=(winnowd:dpdk --listen 10.77.0.102:5555 --datapath dpdk --device eth0)
in_ns a1 server d0 $packet "${dpdk[@]}"
ready d0
keeps d0 '^(eal-intr-thread|dpdk-intr|rte-|dpdk-)'
in_ns w0 worker 0 winnowd none --aggregators 10.77.0.102:5555
in_ns w1 worker 1 winnowd:dpdk $packet --aggregators 10.77.0.102:5555 --datapath dpdk --device eth0
right
ends d0
in_ns a1 needs_all $packet 'CAP_NET_RAW, CAP_NET_ADMIN and CAP_IPC_LOCK' "${dpdk[@]}"

# ---- DPDK on AF_XDP: the kernel keeps the interface, our program takes Winnow's datagrams out ----
reserve 320
inside sw ethtool -L "$net-a1" rx 1 tx 1 || fail "cannot set the number of queues"
inside a1 ethtool -L eth0 rx 1 tx 1 || fail "cannot set the number of queues"
dpdk=(winnowd:dpdk --listen 10.77.0.102:5555 --threads 1 --datapath dpdk
	--eal "--in-memory --no-pci --vdev=net_af_xdp0,iface=eth0,xdp_prog=/usr/lib/winnow/redirect.bpf.o")
in_ns a1 server d1 $packet,BPF,PERFMON "${dpdk[@]}"
ready d1
DAEMON=$(pod inspect -f '{{.State.Pid}}' "$net-d1") uses_huge_pages || fail "no huge pages are used"
for rank in 0 1; do in_ns w$rank worker $rank winnowd none --aggregators 10.77.0.102:5555; done
right
ends d1
inside a1 ip link set eth0 xdp off
in_ns a1 needs_all $packet,BPF,PERFMON 'net_af_xdp0' "${dpdk[@]}"

# ---- DPDK on memif: containers that share a folder, and no capability at all ----
memif="socket=/run/winnow/memif.sock,socket-abstract=no,bsize=16384,rsize=10"
eal="--no-shconf --no-huge --no-pci -m"
server m0 none winnowd:dpdk --datapath dpdk --data-address 10.78.0.100/24 \
	--eal "$eal 512 --vdev=net_memif0,role=server,id=0,$memif --vdev=net_memif1,role=server,id=1,$memif"
ready m0
keeps m0 '^$'
for rank in 0 1; do
	worker $rank winnowd:dpdk none --aggregators m0:5555 --datapath dpdk --data-address 10.78.0.$((rank + 1))/24 \
		--eal "$eal 192 --vdev=net_memif0,role=client,id=$rank,$memif"
done
right
says m0 'job_started .*payload=8972'
ends m0
# The image without DPDK says that it has none.
server none none winnowd --datapath dpdk --device eth0
[ "$(ended none 10)" = 2 ] || fail "winnowd without DPDK starts with --datapath dpdk"
grep -q "no datapath 'dpdk' in this build" "$tmp/none.err" || fail "without DPDK: $(cat "$tmp/none.err")"
echo "all right"
