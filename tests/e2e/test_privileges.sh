#!/usr/bin/env bash
# winnowd as nobody with the three capabilities that XDP takes: it works, and gives them up at once; without them it says so.
# no-sanitizers: theirs have threads of their own
. "$(dirname "$0")/lib.sh"
need_namespaces
hosts_up 2 1 1500
one=10.77.0.101:5555
# nobody must be able to reach the program, wherever the project lies.
mkdir "$tmp/bin"
cp "$BUILD/winnowd" "$tmp/bin/"
chmod -R a+rX "$tmp"
as_nobody() { # capabilities, comma first
	echo "setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all$1 --ambient-caps=-all$1 --bounding-set=-all$1"
}
# shellcheck disable=SC2046 # a list
nobody() { inside a0 $(as_nobody "$1") "$tmp/bin/winnowd" --listen $one --insecure-no-key --datapath xdp --device eth0; }
for caps in "" ,+bpf,+perfmon ,+net_admin,+perfmon ,+bpf,+net_admin; do
	refuses 1 'CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN' nobody "$caps"
done

INSIDE=$(as_nobody ,+bpf,+perfmon,+net_admin) BUILD=$tmp/bin winnowd_inside 0 --insecure-no-key --datapath xdp --device eth0
grep -q 'datapath=xdp' "$tmp/winnowd-a0.log" || fail "winnowd does not start as nobody"
for file in /proc/"$DAEMON"/task/*/status; do
	grep -qE '^CapEff:[[:space:]]*0+$' "$file" || fail "a thread keeps capabilities: $(grep Cap "$file")"
	grep -qE '^CapPrm:[[:space:]]*0+$' "$file" || fail "a thread keeps permitted capabilities"
	grep -qE '^Uid:[[:space:]]*65534' "$file" || fail "not nobody"
	grep -qE '^NoNewPrivs:[[:space:]]*1' "$file" || fail "a thread may have new privileges"
done
bench_inside 2 $one 60 --insecure-no-key --size 1M --iters 2
grep -q 'fast=yes' "$tmp/winnowd-a0.log" || fail "the job was not fast"
winnowd_stop

# Or root opens all, and becomes nobody: the kernel still adds, and takes a second job.
winnowd_inside 0 --user nobody --insecure-no-key --datapath xdp --device eth0
for file in /proc/"$DAEMON"/task/*/status; do
	grep -qE '^Uid:[[:space:]]*65534[[:space:]]*65534[[:space:]]*65534[[:space:]]*65534$' "$file" || fail "a thread is not nobody"
	grep -qE '^CapPrm:[[:space:]]*0+$' "$file" || fail "a thread keeps permitted capabilities"
done
for job in one two; do
	bench_inside 2 $one 60 --insecure-no-key --job $job --size 1M --iters 2
done
has_lines 2 'fast=yes' "$tmp/winnowd-a0.log" || fail "the jobs were not fast"
winnowd_stop
echo "nobody is enough"
