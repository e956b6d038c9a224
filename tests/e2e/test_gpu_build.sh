#!/usr/bin/env bash
# Everything for a GPU compiles and links with nvcc; kernels spill no registers.
# release: nvcc, again and again
# no-sanitizers: it compiles only
# aside: it compiles
. "$(dirname "$0")/lib.sh"

# Toolkits of several ages: which architectures are asked for, which compiler; too old is as none, and said.
mkdir "$tmp/bin" "$tmp/include"
touch "$tmp/include/cuda_runtime.h"
pretend() { # release codes..: what make would run
	local release=$1
	shift
	# shellcheck disable=SC2016 # the pretended nvcc's own
	printf '#!/bin/sh\n[ "$1" = --list-gpu-code ] && printf "%%s\\n" %s\n[ "$1" != --version ] || echo "Cuda compilation tools, release %s, V%s.1"\n' \
		"$*" "$release" "$release" >"$tmp/bin/nvcc"
	chmod +x "$tmp/bin/nvcc"
	make --no-print-directory -n MAKELEVEL=0 CUDA_HOME="$tmp" BUILD="$tmp/build" all >"$tmp/make.log" || fail "make, with CUDA $release"
}
runs() { seen -E -- "$1" <"$tmp/make.log"; } # pattern
pretend 11.8 sm_35 sm_80 sm_86 sm_90
runs 'bin/nvcc +-O3 .*code=compute_80 -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -MD' || fail "CUDA 11.8"
pretend 12.9 sm_80 sm_90 sm_100 sm_103 sm_120
runs 'bin/nvcc -ccbin g[+][+] -O3 .*code=sm_100 -gencode arch=compute_120,code=sm_120 -MD' || fail "CUDA 12.9"
pretend 11.4 sm_80
runs 'is older than CUDA 11.8: built without winnow-cuda.so' || fail "CUDA 11.4 is not too old"
runs 'bin/nvcc -' && fail "CUDA 11.4 is used"

nvcc=${CUDA_HOME:-/usr/local/cuda}/bin/nvcc
[ -x "$nvcc" ] || nvcc=/usr/bin/nvcc
[ -x "$nvcc" ] || {
	echo "no nvcc"
	exit 77
}
make --no-print-directory "$BUILD/winnow-cuda.so" "$BUILD/gpu/test_kernels" "$BUILD/gpu/bench_gpu" "$BUILD/gpu/bench_staging" || fail "make"
readelf -d "$BUILD/winnow-cuda.so" | seen -E 'NEEDED.*(cuda|nccl)' && fail "winnow-cuda.so: CUDA and NCCL are opened at run time, not needed"

# For 64-bit Arm, where the toolkit's half for that processor can be had: it lies beside the other one, as NVIDIA's package puts it.
release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
case $release in 1[3-9].*) wheel=nvidia-cuda-runtime ;; *) wheel=nvidia-cuda-runtime-cu${release%.*} ;; esac
cuda=$tmp/cuda
mkdir -p "$cuda/targets"
if python3 -m pip download -q --no-deps --only-binary=:all: --platform manylinux2014_aarch64 -d "$tmp" "$wheel==$release.*" >"$tmp/pip.log" 2>&1; then
	need_arm
	cp -rs "$(dirname "$(dirname "$(realpath "$nvcc")")")/." "$cuda/"
	python3 -m zipfile -e "$tmp"/nvidia_cuda_runtime*.whl "$tmp/runtime" || fail "$wheel is no wheel"
	mkdir "$cuda/targets/sbsa-linux"
	cp -rs "$cuda/include" "$cuda/targets/sbsa-linux/"
	cp -rf "$tmp"/runtime/nvidia/*/{include,lib} "$cuda/targets/sbsa-linux/"
	make --no-print-directory CROSS="$cross" CUDA_HOME="$cuda" "$arm/winnow-cuda.so" >"$tmp/make.log" 2>&1 || fail "make CROSS=$cross"
	all_for_arm "$arm/kernels"
	"${qemu[@]}" "$arm/root/usr/bin/python3" -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$arm/winnow-cuda.so" || fail "winnow-cuda.so for Arm does not load"
	rm "$arm/winnow-cuda.so" # what else is made there is made without CUDA
else
	echo "not for 64-bit Arm: PyPI does not give $wheel $release"
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
	}' "$BUILD/kernels.txt"
