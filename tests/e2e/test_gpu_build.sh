#!/usr/bin/env bash
# Everything for a GPU compiles and links with nvcc; kernels spill no registers; the bench runs, on the emulation.
# release: nvcc, again and again
# no-sanitizers: it compiles only
# aside: it compiles
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${BUILD:-build}

rows=$(EMULATED_CUDA_PAUSE_US=0 "$build/emulated/bench_gpu" 65536 | grep -c '^| .* | .* | [0-9]') || true
[ "$rows" -gt 100 ] || {
	echo "bench_gpu made $rows rows on the emulated CUDA"
	exit 1
}
echo "bench_gpu: $rows rows on the emulated CUDA"

# Toolkits of several ages: which architectures are asked for, which compiler; too old is as none, and said.
toolkit=$(mktemp -d)
trap 'rm -rf "$toolkit"' EXIT
mkdir "$toolkit/bin" "$toolkit/include"
touch "$toolkit/include/cuda_runtime.h"
pretend() { # release codes..: what make would run
	local release=$1
	shift
	# shellcheck disable=SC2016 # the pretended nvcc's own
	printf '#!/bin/sh\n[ "$1" = --list-gpu-code ] && printf "%%s\\n" %s\n[ "$1" != --version ] || echo "Cuda compilation tools, release %s, V%s.1"\n' \
		"$*" "$release" "$release" >"$toolkit/bin/nvcc"
	chmod +x "$toolkit/bin/nvcc"
	make --no-print-directory -n MAKELEVEL=0 CUDA_HOME="$toolkit" BUILD="$toolkit/build" all
}
expect() { # what pattern: 'gone' says that there is no such line
	if grep -qE -- "$2" "$toolkit/out"; then [ "${3:-}" != gone ]; else [ "${3:-}" = gone ]; fi || {
		echo "CUDA $1: make's commands: $2 ${3:-missing}"
		exit 1
	}
}
pretend 11.8 sm_35 sm_80 sm_86 sm_90 >"$toolkit/out"
expect 11.8 'bin/nvcc +-O3 .*code=compute_80 -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -MD'
pretend 12.9 sm_80 sm_90 sm_100 sm_103 sm_120 >"$toolkit/out"
expect 12.9 'bin/nvcc -ccbin g[+][+] -O3 .*code=sm_100 -gencode arch=compute_120,code=sm_120 -MD'
pretend 11.4 sm_80 >"$toolkit/out"
expect 11.4 'is older than CUDA 11.8: built without winnow-cuda.so'
expect 11.4 'bin/nvcc -' gone

nvcc=${CUDA_HOME:-/usr/local/cuda}/bin/nvcc
[ -x "$nvcc" ] || nvcc=/usr/bin/nvcc
[ -x "$nvcc" ] || {
	echo "no nvcc"
	exit 77
}
make --no-print-directory "$build/winnow-cuda.so" "$build/gpu/test_kernels" "$build/gpu/bench_gpu" "$build/gpu/bench_staging"
if readelf -d "$build/winnow-cuda.so" | grep -E 'NEEDED.*(cuda|nccl)'; then
	echo "winnow-cuda.so: CUDA and NCCL are opened at run time, not needed"
	exit 1
fi

# "Compiling entry function 'NAME' for 'sm_90'", then stack and spills, then registers.
awk '
	/Compiling entry function/ { split($0, quoted, "\047"); name = quoted[2]; arch = quoted[4] }
	/bytes stack frame/ && name { stack = $1; spills = $5 + $9 }
	/: Used [0-9]+ registers/ && name {
		match($0, /[0-9]+ registers/); registers = substr($0, RSTART) + 0
		smem = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART) + 0 : 0
		sub(/^_Z[0-9]+/, "", name)
		printf "%-7s %3d registers %5d bytes shared %s\n", arch, registers, smem, name
		count[arch]++
		if (stack > 0 || spills > 0) { printf "%s for %s spills: stack %d bytes, spills %d bytes\n", name, arch, stack, spills; bad = 1 }
		name = ""
	}
	END {
		for (arch in count) { kinds++; printf "%s: %d kernels\n", arch, count[arch]; if (count[arch] != count["sm_90"]) bad = 1 }
		if (kinds < 2 || count["sm_80"] < 4) { print "the resource report is not whole"; bad = 1 }
		exit bad
	}' "$build/kernels.txt"
