#!/usr/bin/env bash
# Everything for 64-bit Arm, built here and run by qemu: unit tests, simulation, and jobs in which both kinds of CPU take part.
# release: it builds the tree once more
# no-sanitizers: it has a build of its own
# aside: it compiles, and computes for minutes
# shellcheck disable=SC2001,SC2046,SC2153 # lists; winnowd sets PORT
. "$(dirname "$0")/lib.sh"
need_arm

# What qemu does not pass to the system: the program that steers datagrams to threads, limits of threads, memory and descriptors.
# Those of XDP and DPDK need a kernel, and ports, of that CPU.
lacks='xdp.*|dpdk.*|net|net_udp|limits|pool|comm_peers|connections'
tests=$(find tests/unit -name "test_*.c" | sed 's|.*/test_||; s|\.c$||' | grep -vxE "$lacks")
make --no-print-directory -j"$(nproc)" CROSS="$cross" WERROR="${WERROR:-}" all "$arm/tests/sim/sim" \
	$(sed "s|^|$arm/tests/unit/test_|" <<<"$tests") >"$tmp/out" 2>&1 || fail "the build: $(grep -v '^  ' "$tmp/out" | tail -n 20)"
for file in winnowd winnow libwinnow.so winnow-dpdk.so; do
	readelf -h "$arm/$file" | seen AArch64 || fail "$file is for another CPU"
done

one() { # a unit test
	timeout 300 "${qemu[@]}" "$arm/tests/unit/test_$1" >"$tmp/unit-$1" 2>&1 || touch "$tmp/failed-$1"
}
for test in $tests; do
	while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || true; done
	one "$test" &
done
wait
for file in "$tmp"/failed-*; do
	[ -e "$file" ] && fail "unit test ${file##*-}: $(grep -v -e 'RUN  ' -e '   OK ' "$tmp/unit-${file##*-}" | head -n 20)"
done
timeout 1200 "${qemu[@]}" "$arm/tests/sim/sim" 1 300 >"$tmp/out" 2>&1 || fail "the simulation: $(tail -n 5 "$tmp/out")"

# Jobs of three workers, one of each kind and one more, with an aggregator of either: every element is compared.
on_arm=("${qemu[@]}" "$arm/winnow") on_x86=("$BUILD/winnow")
WINNOW_ISA=avx2 "${qemu[@]}" "$arm/winnowd" --insecure-no-key --check 2>"$tmp/out" && fail "an engine of another CPU is taken"
seen -F "WINNOW_ISA is 'avx2', but this CPU can run only: scalar neon" <"$tmp/out" || fail "$(cat "$tmp/out")"
together() { # port options..
	local port=$1 rank workers=() worker
	shift
	for rank in 1 2 0; do
		worker=("${on_arm[@]}")
		[ $rank = 1 ] || worker=("${on_x86[@]}")
		timeout 120 "${worker[@]}" bench --aggregators "127.0.0.1:$port" --insecure-no-key --world 3 --rank $rank --check --iters 3 --warmup 1 \
			--json "$@" >"$tmp/rank$rank" 2>"$tmp/rank$rank.err" &
		workers+=($!) pids+=($!) # which end with a test that fails
	done
	for worker in "${workers[@]}"; do wait "$worker" || fail "$*: $(cat "$tmp"/rank*.err)"; done
	seen '"errors": *0[,}]' <"$tmp/rank0" || fail "$*: $(cat "$tmp/rank0")"
}
winnowd --insecure-no-key --threads 1
x86=$PORT
port=$(free_port)
"${qemu[@]}" "$arm/winnowd" --insecure-no-key --listen "127.0.0.1:$port" --threads 1 --metrics no 2>"$tmp/winnowd-arm.log" &
pids+=($!) daemons+=($!)
await 'event=ready.*isa=neon' "$tmp/winnowd-arm.log"
for aggregator in "$x86" "$port"; do
	together "$aggregator" --size 4M --density 1,0.1,0.01
	together "$aggregator" --size 4M --density 0.3 --wire fixed32
	together "$aggregator" --size 2M --density 0.2 --dtype bf16 --op avg
	together "$aggregator" --size 2M --density 0.02 --block 1
	together "$aggregator" --size 4K --density 1
done
