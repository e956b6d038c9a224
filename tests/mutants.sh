#!/usr/bin/env bash
# mutants.sh [--look | AREA[:FIRST]..] - which faults do the tests see? Puts one fault after the other into a copy of the sources
#
# tests/mutants/AREA says what is broken there, one line at a time, and which tests should mind:
#
#   bound 0.9                      what part of this area's faults must be caught
#   tests unit:PATTERN gpu:NAME sim:N e2e:.. python:..   for all of its faults, cheapest first (see try_test below)
#   @ FILE [tests..]               a fault: in this file; with tests of its own, before the area's
#   - line as it is                found once in the file, spaces at its ends aside
#   + line as it shall be          the same indentation; empty: nothing is done there
#
# A fault is caught when a test fails or does not end in time; one that does not compile, or whose line is no
# longer there, is a fault of the list. Hours, not minutes; not part of make check, which only looks whether all of
# these lines are there (--look). KEEP=yes keeps the copy.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = --look ]; then
	awk '/^@ / { file = $2 }
		/^- / {
			sub(/^- */, ""); sub(/[ \t]*$/, ""); wanted = $0; places = 0
			while ((getline line <file) > 0) {
				gsub(/^[ \t]+|[ \t]+$/, "", line)
				places += line == wanted
			}
			close(file)
			if (places != 1 && ++wrong)
				printf "%s:%d: %s has %d lines: %s\n", FILENAME, FNR, file, places, wanted
		}
		END { exit wrong > 0 }' tests/mutants/*
	exit
fi
tree=$PWD/build/mutants/tree
mkdir -p "$tree" build/mutants/log
git ls-files -z -co --exclude-standard | tar c --null -T - --ignore-failed-read 2>/dev/null | tar x -C "$tree"
jobs=$(nproc)
areas=("$@")
[ $# -gt 0 ] || for file in tests/mutants/*; do areas+=("$(basename "$file")"); done

cd "$tree"
echo "building all that there is, without a fault"
make -s -j"$jobs" all tests >../log/build 2>&1 || { tail -20 ../log/build; exit 1; }
log=../log/last

# Are the test's programs built, and does it fail? 0: it failed; 1: it passed; 2: the fault does not compile
try_test() { # KIND:WHAT
	local what=${1#*:} name
	case $1 in
	unit:*)
		local programs=()
		for name in tests/unit/test_$what.c; do programs+=("build/${name%.c}"); done
		build "${programs[@]}" || return
		for name in "${programs[@]}"; do timeout -k 5 120 "$name" >$log 2>&1 || return 0; done
		return 1
		;;
	gpu:*) build "build/tests/gpu/test_$what" && ! timeout -k 5 120 "build/tests/gpu/test_$what" >$log 2>&1 ;;
	sim:*) build build/tests/sim/sim && ! timeout -k 5 600 build/tests/sim/sim 1 "$what" >$log 2>&1 ;;
	python:*) build all build/winnow-cuda-emulated.so && ! PYTHON_TESTS=$what BUILD=build timeout -k 5 900 tests/e2e/test_python.sh >$log 2>&1 ;;
	e2e:*)
		build all tests || return
		local status=0
		BUILD=build setsid timeout -k 10 600 "tests/e2e/test_$what.sh" >$log 2>&1 </dev/null || status=$?
		[ $status != 77 ] || { echo "  e2e $what skips here: $(tail -1 $log)" && return 1; }
		[ $status != 0 ]
		;;
	*) echo "what is $1?" && exit 1 ;;
	esac
}
build() {
	make -s -j"$jobs" "$@" >../log/make 2>&1 || return 2
}

apply() { # FILE OLD NEW
	python3 - "$@" <<'P'
import sys
name, old, new = sys.argv[1:]
lines = open(name).read().split("\n")
places = [i for i, line in enumerate(lines) if line.strip() == old.strip()]
if len(places) != 1:
    sys.exit(f"{name}: {len(places)} lines are: {old.strip()}")
line = lines[places[0]]
indent = line[: len(line) - len(line.lstrip())]
lines[places[0]] = indent + (new.strip() or ("pass" if name.endswith(".py") else ";"))
open(name, "w").write("\n".join(lines))
P
}

wrong=0
one() { # area number file old new tests..
	local label="$1 $2" file=$3 old=$4 new=$5 test status
	cp -p "$file" ../original
	apply "$file" "$old" "$new" || { wrong=1 && return; }
	count=$((count + 1))
	for test in "${@:6}"; do
		status=0
		try_test "$test" || status=$?
		[ $status != 1 ] || continue
		if [ $status = 2 ]; then
			echo "$label  does not compile  $file: ${new:-without }${new:+ for }$old"
			wrong=1
		else
			caught=$((caught + 1))
			echo "$label  caught by $test"
		fi
		break
	done
	[ $status != 1 ] || echo "$label  SURVIVES  $file: ${new:-nothing} for $old"
	cp ../original "$file"
}

area() { # name
	local bound=1 number=0 first=${2:-1} file='' old='' own=() all=() kind rest
	caught=0 count=0
	while IFS= read -r line; do
		kind=${line%% *} rest=${line#"$kind"} rest=${rest# }
		case $kind in
		'' | '#'*) ;;
		bound) bound=$rest ;;
		tests) read -ra all <<<"$rest" ;;
		@) read -ra own <<<"$rest" && file=${own[0]} own=("${own[@]:1}") ;;
		-) old=$rest ;;
		+)
			number=$((number + 1))
			[ "$number" -lt "$first" ] || one "$1" $number "$file" "$old" "$rest" "${own[@]}" "${all[@]}"
			;;
		*) echo "tests/mutants/$1: what is '$line'?" && exit 1 ;;
		esac
	done <"$OLDPWD/tests/mutants/$1"
	rates+=("$(awk -v n=$caught -v of=$count -v b="$bound" -v a="$1" 'BEGIN {
		printf "%-10s %3d of %3d caught, %.2f; at least %.2f %s", a, n, of, n / of, b, (n / of < b ? "MISSED" : "ok") }')")
}
rates=()
# shellcheck disable=SC2086 # a name, and perhaps where to begin
for name in "${areas[@]}"; do area ${name/:/ }; done
printf '%s\n' "${rates[@]}"
cd "$OLDPWD"
[ "${KEEP:-}" = yes ] || rm -rf "$tree"
[ $wrong = 0 ] && [[ ${rates[*]} != *MISSED* ]]
