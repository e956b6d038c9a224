#!/usr/bin/env bash
# run.sh SECONDS BUILD [TARGET..] - build the fuzzers in BUILD, let each have so many seconds of a CPU
#
# Each begins with seeds that seeds.c writes and with inputs that once failed, those of tests/fuzz/corpus/TARGET and
# those of earlier runs in BUILD/failed/TARGET: what was found by chance fails until it is mended. It prints how many
# inputs it has tried and how many edges of the code they reach. With 0 seconds only these inputs are tried. Ends with 1
# when one fails, and with the command that replays it.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
seconds=$1 build=$2
shift 2
mkdir -p "$build"

if ! flock "$build" make --no-print-directory -j"$(nproc)" CC=clang BUILD="$build" SAN=fuzzer-no-link,address,undefined \
	CFLAGS='-O1 -g -fno-sanitize-recover=all' fuzzers >"$build/build.log" 2>&1; then
	tail -n 20 "$build/build.log"
	exit 1
fi
if [ $# -eq 0 ]; then
	mapfile -t targets < <(basename -a -s .c tests/fuzz/fuzz_*.c)
	set -- "${targets[@]#fuzz_}"
fi

field() { # name: of the statistics at the end of the log
	sed -n "s/^stat::$1: *//p" "$log" | tail -n 1
}

# The same work beside others as alone: what counts is time on a CPU. A fuzzer that is asked to ends well.
spend() { # seconds command..
	local pid ticks=$(($1 * $(getconf CLK_TCK)))
	"${@:2}" &
	pid=$!
	while [ "$ticks" -gt 0 ] && kill -0 $pid 2>/dev/null; do
		[ "$(awk '{ print $14 + $15 }' /proc/$pid/stat 2>/dev/null || echo 0)" -lt "$ticks" ] || kill -USR1 $pid 2>/dev/null
		sleep 0.2
	done
	wait $pid
}

status=0
for target in "$@"; do
	program=$build/tests/fuzz/fuzz_$target log=$build/$target.log seeds=$build/corpus/$target failed=$build/failed/$target
	exec 9>"$build/$target.lock" # another run.sh may be at this target, with the same seeds and log
	flock 9
	options=(-seed=1 -timeout=30 -rss_limit_mb=2048 -max_len=4096 -len_control=20 -print_final_stats=1
		-artifact_prefix="$failed/" -close_fd_mask=1)
	[ "$seconds" != 0 ] || options+=(-runs=0)
	folders=("$seeds" "$failed")
	[ ! -d "tests/fuzz/corpus/$target" ] || folders+=("tests/fuzz/corpus/$target")
	rm -rf "$seeds"
	mkdir -p "$seeds" "$failed"
	rm -f "$seeds.dict"
	"$build/tests/fuzz/seeds" "$target" "$seeds" || exit 1
	# Words that it knows: those that are written by hand, and those that seeds.c takes from the code.
	cat "tests/fuzz/$target.dict" "$seeds.dict" 2>/dev/null | sort -u >"$seeds.words"
	[ ! -s "$seeds.words" ] || options+=(-dict="$seeds.words")
	if spend "$seconds" "$program" "${options[@]}" "${folders[@]}" >"$log" 2>&1; then
		printf '%-8s %9s inputs, %5s edges, %s MB\n' "$target" "$(field number_of_executed_units)" \
			"$(grep -o ' cov: [0-9]*' "$log" | tail -n 1 | cut -d ' ' -f 3)" "$(field peak_rss_mb)"
	else
		status=1
		grep -E 'ERROR|error:|Assertion|SUMMARY|^ *#[0-9]+ .* in ' "$log" | head -n 30
		input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
		echo "fuzz_$target failed; replay: $program $input"
	fi
done
exit $status
