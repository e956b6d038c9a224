#!/usr/bin/env bash
# run.sh BUILD SAN - run all tests that belong to this build; the last line counts them
#
# A test is a program or script: exit status 0 passed, 77 skipped (its last line says why), anything
# else failed. Programs lie in BUILD/tests, scripts in tests/. Logs: BUILD/tests/log. With SAN set,
# tests of other people's programs and of the machine are left out: they would test nothing new.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=$1 san=${2:-}
logs=$build/tests/log
mkdir -p "$logs"
rm -f "$logs"/*
export BUILD=$build SAN=$san
# torch and others are not built with the sanitizer; leaks of a killed process are no leaks.
export ASAN_OPTIONS=${ASAN_OPTIONS:-abort_on_error=1:detect_leaks=1} UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}
. tests/report.sh

# Two at a time: first one in the background, then the other, then both results.
pair() { # name1 name2 seconds command1 command2
	local start=$SECONDS status1 status2 first
	timeout -k 10 "$3" bash -c "$4" >"$logs/$1" 2>&1 </dev/null &
	first=$!
	timeout -k 10 "$3" bash -c "$5" >"$logs/$2" 2>&1 </dev/null
	status2=$?
	wait $first
	status1=$?
	report "$1" $status1 $((SECONDS - start))
	report "$2" $status2 $((SECONDS - start))
}

[ -n "$san" ] || run layers 60 tests/check_layers.sh
for test in tests/unit/test_*.c; do
	name=$(basename "$test" .c)
	run "${name#test_}" 300 "$build/tests/unit/$name"
done

for test in tests/gpu/test_*.c tests/gpu/test_*.cc; do
	[ -e "$test" ] || continue
	name=$(basename "${test%.*}")
	run "gpu-${name#test_}" 300 "$build/tests/gpu/$name"
done

if [ -x "$build/tests/sim/sim" ] && [[ $san != *thread* ]]; then # one thread: nothing for tsan
	count=$([ -n "$san" ] && echo 400 || echo 3000)
	pair "sim-seeds-1-to-$count" "sim-seeds-$((count + 1))-to-$((2 * count))" 900 \
		"$build/tests/sim/sim 1 $count" "$build/tests/sim/sim $((count + 1)) $count"
fi

for test in tests/e2e/test_*.sh; do
	[ -e "$test" ] || continue
	if [ -n "$san" ] && grep -q '^# no-sanitizers' "$test"; then
		continue
	fi
	name=$(basename "$test" .sh)
	run "${name#test_}" 600 "$test"
done

# They are built with clang and sanitizers of their own, so once is enough.
if [ -z "$san" ]; then
	mapfile -t fuzzers < <(basename -a -s .c tests/fuzz/fuzz_*.c)
	fuzz="tests/fuzz/run.sh 10 build/fuzz"
	run fuzz-build 900 tests/fuzz/run.sh 0 build/fuzz
	while [ ${#fuzzers[@]} -ge 2 ]; do
		pair "${fuzzers[0]/_/-}" "${fuzzers[1]/_/-}" 120 "$fuzz ${fuzzers[0]#fuzz_}" "$fuzz ${fuzzers[1]#fuzz_}"
		fuzzers=("${fuzzers[@]:2}")
	done
	[ ${#fuzzers[@]} -eq 0 ] || run "${fuzzers[0]/_/-}" 120 bash -c "$fuzz ${fuzzers[0]#fuzz_}"
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
