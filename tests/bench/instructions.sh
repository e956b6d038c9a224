#!/usr/bin/env bash
# instructions.sh - instructions that each engine executes for a block of 256 f32, AVX2's and NEON's, counted by qemu.
# Nothing can be timed on a CPU that is not here: the counts say whether a loop is as short as its model.
set -euo pipefail
cd "$(dirname "$0")/../.."
docker/install-packages.sh build cross
arm=build/aarch64-linux-gnu
docker/arm64-root.sh "$arm/root"
make -s build/tests/bench/blocks_once && make -s CROSS=aarch64-linux-gnu "$arm/tests/bench/blocks_once"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
count() { # engine function blocks: with one instruction a translation, each makes a line
	local emulator=(qemu-x86_64-static -cpu max) program=build/tests/bench/blocks_once
	[ "$1" != neon ] || emulator=(qemu-aarch64-static -L "$arm/root") program=$arm/tests/bench/blocks_once
	"${emulator[@]}" -singlestep -d exec,nochain -D "$log" "$program" "$@" && wc -l <"$log"
}
echo "| function | AVX2 | NEON | NEON / AVX2 |"
echo "|---|---|---|---|"
for function in scan scan_range pack reduce fixed_encode; do
	of=()
	for engine in avx2 neon; do # what a process does besides is in both
		of+=($((($(count $engine $function 192) - $(count $engine $function 64)) / 128)))
	done
	echo "| $function | ${of[0]} | ${of[1]} | $(awk "BEGIN { printf \"%.1f\", ${of[1]} / ${of[0]} }") |"
done
