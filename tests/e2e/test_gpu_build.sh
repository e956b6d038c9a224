#!/usr/bin/env bash
# Everything for a GPU compiles and links with nvcc; kernels spill no registers; the bench runs, on the emulation.
# no-sanitizers
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${BUILD:-build}

rows=$(EMULATED_CUDA_PAUSE_US=0 "$build/emulated/bench_gpu" 65536 | grep -c '^| .* | .* | [0-9]') || true
[ "$rows" -gt 300 ] || {
	echo "bench_gpu made $rows rows on the emulated CUDA"
	exit 1
}
echo "bench_gpu: $rows rows on the emulated CUDA"

nvcc=${CUDA_HOME:-/usr/local/cuda}/bin/nvcc
[ -x "$nvcc" ] || {
	echo "no nvcc"
	exit 77
}
make --no-print-directory "$build/winnow-cuda.so" "$build/gpu/test_kernels" "$build/gpu/bench_gpu"
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
		if (kinds < 4 || count["sm_80"] < 20) { print "the resource report is not whole"; bad = 1 }
		exit bad
	}' "$build/kernels.txt"
