#!/usr/bin/env bash
# lint.sh - what machines can say about style: format, static analysis, types of Python, shell, folders, sizes
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
status=0
step() { # name command..
	if "${@:2}"; then
		echo "ok    $1"
	else
		echo "FAIL  $1"
		status=1
	fi
}
mapfile -t c < <(git ls-files '*.c' | grep -v '\.bpf\.c$') # those are not for this machine's compiler
mapfile -t sources < <(git ls-files '*.c' '*.h' '*.cu' '*.cc')
mapfile -t scripts < <(git ls-files '*.sh' .ci/run)

# The style page's limits; generated and vendored files do not exist here.
sizes() {
	awk 'FNR == 1 { start = 0 }
		/^\{/ { start = FNR }
		/^\}/ { if (start && FNR - start - 1 > 70) { printf "%s:%d: function of %d lines, at most 70\n", FILENAME, start, FNR - start - 1; bad = 1 } start = 0 }
		END { exit bad }' "${sources[@]}"
}

# text_add() cannot write beyond a text's array; an offset and what is left of the room can.
texts() {
	! git grep -nEA 1 '\bsnprintf\(' -- 'aggregator/*.[ch]' 'bitmap/*.[ch]' 'client/*.[ch]' 'ebpf/*.[ch]' kernels |
		grep -E 'snprintf\([^,()]* \+ [a-z_]|^[^:]*-[0-9]+-[[:space:]]+[][a-z_>.-]+ \+ [a-z_]+, '
}

# A program with rights that its caller lacks must not hear what the caller's environment says.
environment() {
	! git grep -nwE 'getenv' -- 'aggregator/*.[ch]' 'bitmap/*.[ch]' 'client/*.[ch]' 'ebpf/*.[ch]' kernels
}

analyse() {
	cppcheck --quiet --error-exitcode=1 --std=c11 --enable=warning,portability,performance --inline-suppr \
		--suppress=missingIncludeSystem --suppress=ctuuninitvar '-DLIST_HEAD(name,type)=struct name' --suppress=normalCheckLevelMaxBranches -I. -D__x86_64__ -D_GNU_SOURCE \
		'-DSTAILQ_FOREACH(x,list,next)=while ((x = any()))' '-DRTE_STR(x)=""' '-DRTE_ETH_FOREACH_DEV(x)=while ((x = any()))' '-DRTE_LCORE_FOREACH_WORKER(x)=while ((x = any()))' \
		'-DWINNOW_VERSION="x"' -D__BYTE_ORDER__=1234 -D__ORDER_LITTLE_ENDIAN__=1234 "${c[@]}"
}

tidy() {
	local file bad=0
	# shellcheck disable=SC2046 # lists of options
	for file in "${c[@]}"; do
		case $file in tests/bench/mpi* | tests/fuzz/* | tests/gpu/device_worker.c | tests/sim/reference.c) continue ;; esac # clang 14 has no _Float16
		clang-tidy --quiet --warnings-as-errors='*' \
			--checks='-*,bugprone-*,-bugprone-sizeof-expression,-bugprone-suspicious-memory-comparison,-bugprone-easily-swappable-parameters,-bugprone-narrowing-conversions,-bugprone-implicit-widening-of-multiplication-result,-bugprone-reserved-identifier,-bugprone-branch-clone,-bugprone-assignment-in-if-condition,-bugprone-suspicious-include,-bugprone-macro-parentheses,-bugprone-not-null-terminated-result,-bugprone-integer-division,-bugprone-misplaced-widening-cast' \
			"$file" -- -std=c11 -D_GNU_SOURCE '-DWINNOW_VERSION="x"' -I. -Ibuild \
			$(case $file in *avx512*) echo -mavx512f -mavx512bw -mavx512dq -mavx512vl -mf16c ;; *avx2*) echo -mavx2 -mf16c ;; kernels/* | tests/gpu/*) echo -isystem tests/gpu/emulated -DWINNOW_EMULATED_CUDA ;; */dpdk*) pkg-config --cflags libdpdk | sed 's/-I/-isystem /g' ;; esac) \
			2>/dev/null || bad=1
	done
	return "$bad"
}

step "clang-format" clang-format --dry-run -Werror "${sources[@]}"
step "sizes" sizes
step "texts" texts
step "environment" environment
step "layers" tests/check_layers.sh
step "specification" tests/check_spec.py
step "pages" tests/check_docs.py
step "types" mypy --config-file client/python/pyproject.toml --cache-dir build/mypy --no-error-summary client/python/winnow
step "shellcheck" shellcheck -x -e SC1091,SC2034,SC2154,SC2317 "${scripts[@]}"
step "cppcheck" analyse
[ "${TIDY:-1}" = 0 ] || step "clang-tidy" tidy
exit $status
