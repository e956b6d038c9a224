#!/usr/bin/env bash
# run.sh BUILD SAN unit|check|release [NAME..] - run the tests that belong to this build; the last line counts them
#
# unit: the programs of tests/unit. check: the tests of make check, in minutes, unit tests among them. release: the
# tests that take longer: scripts with a line "# release", more seeds, fuzzers. With SAN set, both check and release.
# With names, which may be patterns, only those tests.
#
# A test is a program or script. Exit status 0 means passed; 77 skipped, and the last line says why; anything else
# failed. Programs are in BUILD/tests, scripts in tests/, logs in BUILD/tests/log. With SAN set, tests of other
# people's programs and of the machine are left out, because they would test nothing new.
#
# Each lane runs one test at a time:
#   one lane runs unit tests and scripts on loopback, in the order of their names;
#   one lane runs scripts with a line "# long", then those with hosts in network namespaces, which depend on timing:
#   never two of them at a time; then those of images, once these are built; then it helps the first lane;
#   one lane runs what has a line "# waits" (in C " * waits"), which mostly waits and disturbs others little; then it helps
#   the first lane, too;
#   two lanes run at the lowest priority, so that they use only idle CPU time. One runs scripts with a line "# aside", which
#   compute or compile. It begins when those with "# long" have ended, which leave none. The other one builds images at once, since
#   tests wait for them; without images it begins when the lanes above have ended. Then both run what computes on one CPU.
# Scripts with a line "# late" come last, one after the other.
#
# Without names, a test that failed beside others runs once more in the end, alone: a busy machine may have been its
# only fault. Both runs are shown; if the second passes, the test counts as passed and is listed as unsteady. If the
# machine itself stood still while it ran alone, as virtual ones do whose host is busy, that run says nothing: it runs
# again, up to five times in all, as long as this does not take more than five minutes for all of them.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=$1 san=$2 kind=$3 only=("${@:4}")
logs=$build/tests/log
mkdir -p "$logs"
rm -f "$logs"/*
export BUILD=$build SAN=$san
[ ${#only[@]} = 0 ] || unset TESTS MAKEFLAGS # those that call make mean other tests
# torch and others are not built with the sanitizer; leaks of a killed process do not count.
export ASAN_OPTIONS=${ASAN_OPTIONS:-abort_on_error=1:detect_leaks=1} UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/tests/thread.supp}
. tests/report.sh

# ---- beside ----

wanted() { # name kind: is it to be run now?
	local pattern
	[ "$kind" != unit ] || [ "$2" = unit ] || return
	for pattern in "${only[@]}"; do
		# shellcheck disable=SC2053 # a pattern
		[[ $1 != $pattern ]] || return 0
	done
	[ ${#only[@]} = 0 ] || return
	[ -n "$san" ] || [ "$([ "$kind" = release ] && echo release)" = "$([ "$2" = release ] && echo release)" ]
}
names=() limits=() commands=() reported=() lanes=() again=() unsteady=()
state=$(mktemp -d)
# The scripts' python3 is Debian's: that of a version manager comes by way of scripts, which take several times its time.
if [ -x /usr/bin/python3 ]; then
	mkdir "$state/bin" && ln -s /usr/bin/python3 "$state/bin/python3" && PATH=$state/bin:$PATH
fi
add() { # kind name seconds command..
	wanted "$2" "$1" || return 0
	shift
	[[ " ${names[*]} " != *" $1 "* ]] || set -- "$1-e2e" "${@:2}" # a unit test has that name, and that log
	names+=("$1") limits+=("$2") reported+=("")
	commands+=("$(printf '%q ' "${@:3}")")
}
kind_of() { # file
	if marked release "$1"; then echo release; else echo check; fi
}
# Only one test at a time may use the kernel's huge pages.
add_script() { # file
	local name pages=()
	name=$(basename "$1" .sh)
	! grep -qE '^need_dpdk|nr_hugepages' "$1" || pages=(flock -o "$state/pages")
	add "$(kind_of "$1")" "${name#test_}" "$(marked aside "$1" && echo 2400 || echo 1200)" "${pages[@]}" "$1"
}

# Runs the tests FIRST to END - 1 that no other lane has begun; state/N/end gets status and seconds. Each runs in a
# session of its own, so that processes left behind by a stopped test can be found.
work() { # FIRST END nice..
	local i begun
	for ((i = $1; i < $2; i++)); do
		mkdir "$state/$i" 2>/dev/null || continue
		begun=$SECONDS
		times >"$state/$i/times" # the second line: CPU time of all children that have ended
		setsid "${@:3}" timeout -k 10 "${limits[i]}" bash -c "${commands[i]}" >"$logs/${names[i]}" 2>&1 </dev/null &
		child=$!
		wait "$child"
		echo "$? $((SECONDS - begun))" >"$state/$i/new"
		times >>"$state/$i/times"
		mv "$state/$i/new" "$state/$i/end"
	done
}
lane() { # priority FIRST:END.. or after:FIRST:END
	local range
	trap 'kill "$child" 2>/dev/null; sleep 1; pkill -KILL -s "$child"; exit 1' TERM
	for range in "${@:2}"; do
		# shellcheck disable=SC2086 # words
		case $range in
		after:*) until_ended ${range//:/ } ;;
		*) work ${range/:/ } nice -n "$1" ;;
		esac
	done
}
until_ended() { # "after" FIRST END
	local i
	for ((i = $2; i < $3; i++)); do
		until [ -e "$state/$i/end" ]; do sleep 0.5; done
	done
}
pulse() { # a line in $state/stalls for each time that nobody got a CPU for 0.3 s
	local before=${EPOCHREALTIME/./} now never
	mkfifo "$state/never"
	exec {never}<>"$state/never"
	while :; do
		read -rt 0.05 -u "$never" _
		now=${EPOCHREALTIME/./}
		[ $((now - before)) -lt 350000 ] || echo "$((now - before))" >>"$state/stalls"
		before=$now
	done
}
stop_lanes() {
	kill "${lanes[@]}" "$pulse" 2>/dev/null
	wait
	rm -rf "$state"
}
: >"$state/stalls"
pulse &
pulse=$!
trap stop_lanes EXIT
trap 'exit 1' INT TERM

cpu_of() { # file with what `times` said before and after
	awk -F '[ms ]+' 'NR % 2 == 0 { before = now; now = 60 * ($1 + $3) + $2 + $4 } END { printf "%.0f", now - before }' "$1"
}
collect() { # reports what has ended
	local i status seconds
	for i in "${!names[@]}"; do
		if [ ! -e "$state/$i/end" ] || [ -n "${reported[i]}" ]; then continue; fi
		read -r status seconds <"$state/$i/end"
		reported[i]=yes
		if [[ $status != 0 && $status != 77 && ${#only[@]} = 0 && ! -e $logs/${names[i]}.first ]]; then
			echo "again ${names[i]} (exit status $status, $seconds s), alone and later; its last lines:"
			mv "$logs/${names[i]}" "$logs/${names[i]}.first"
			tail -n 25 "$logs/${names[i]}.first" | sed 's/^/      /'
			again+=("$i")
			continue
		fi
		report "${names[i]}" "$status" "$seconds" "$(cpu_of "$state/$i/times")" "$([ "$i" -lt "$waiting" ] || [ "$i" -ge "$late" ] || echo aside)"
	done
}
run_again() { # those that failed beside others
	local i try status stalls until=$((SECONDS + 300))
	for i in "${again[@]}"; do
		for try in 1 2 3 4 5; do
			rm -rf "${state:?}/$i"
			stalls=$(wc -l <"$state/stalls")
			lane 0 "$i:$((i + 1))" &
			lanes=($!)
			wait "${lanes[0]}"
			status=$(cut -d ' ' -f 1 "$state/$i/end" 2>/dev/null)
			[[ $status != 0 && $status != 77 && $(wc -l <"$state/stalls") -gt $stalls && $try -lt 5 && $SECONDS -lt $until ]] || break
			echo "again ${names[i]} (exit status $status), since the machine stood still meanwhile for" \
				"$(tail -n "+$((stalls + 1))" "$state/stalls" | awk '{ sum += $1 } END { printf "%.1f s", sum / 1e6 }')"
		done
		reported[i]=
		collect
		[ "$status" != 0 ] || unsteady+=("${names[i]}")
	done
}
await() { # FIRST END LANE..: until these have ended, or nobody is there to run them
	local i=$1 lane lives
	while [ "$i" -lt "$2" ]; do
		collect
		[ ! -e "$state/$i/end" ] || { i=$((i + 1)) && continue; }
		lives=no
		for lane in "${@:3}"; do ! kill -0 "$lane" 2>/dev/null || lives=yes; done
		[ $lives = yes ] || break
		sleep 0.2
	done
	collect
}

# ---- what there is ----

marked() { # mark, script or C file
	grep -qE "^(#| \*) ($1):" "$2"
}
scripts=()
for test in tests/e2e/test_*.sh; do
	name=$(basename "$test" .sh)
	wanted "${name#test_}" "$(kind_of "$test")" || continue
	if [ -z "$san" ] || ! marked no-sanitizers "$test"; then scripts+=("$test"); fi
done
of_images() { grep -q '^\. tests/e2e/podman.sh' "$1"; }
between_hosts() { grep -qE '^need_(namespaces|dpdk)|^suite' "$1" || [[ $1 = *_suite.sh ]]; }
elsewhere() { of_images "$1" || marked 'waits|aside|long|late' "$1"; }

[ -n "$san" ] || add check layers 60 tests/check_layers.sh
add_unit() { # file
	local name
	name=$(basename "$1" .c)
	add unit "${name#test_}" 300 "$build/tests/unit/$name"
}
for test in tests/unit/test_*.c; do
	marked waits "$test" || add_unit "$test"
done
for test in tests/gpu/test_*.c*; do
	name=$(basename "${test%.c*}")
	add check "gpu-${name#test_}" 300 "$build/tests/gpu/$name"
done
for test in "${scripts[@]}"; do
	elsewhere "$test" || between_hosts "$test" || add_script "$test"
done
hosts=${#names[@]}
for test in "${scripts[@]}"; do
	! marked long "$test" || add_script "$test"
done
long=${#names[@]}
for test in "${scripts[@]}"; do
	elsewhere "$test" || ! between_hosts "$test" || add_script "$test"
done
turn=${#names[@]}
for test in "${scripts[@]}"; do
	! of_images "$test" || add_script "$test"
done
contained=${#names[@]}
for test in tests/unit/test_*.c; do
	! marked waits "$test" || add_unit "$test"
done
for test in "${scripts[@]}"; do
	marked late "$test" || ! marked waits "$test" || add_script "$test"
done
waiting=${#names[@]}
[ -n "$san" ] || add release images 2400 tests/e2e/images.sh
built=${#names[@]}
# These call make, one after the other: two of them in one folder would meet.
for test in "${scripts[@]}"; do
	marked late "$test" || ! marked aside "$test" || add_script "$test"
done
shared=${#names[@]} # from here on, whoever has nothing else to do
if [[ $kind != unit && $san != *thread* ]]; then # one thread: nothing for tsan
	# Two halves, for two CPUs: check has the first 600 of 1,800 seeds.
	case ${san:+san}$kind in
	san*) first=1 count=400 ;;
	check) first=1 count=300 ;;
	release) first=601 count=600 ;;
	esac
	for ((i = 0; i < 2; i++, first += count)); do
		add "$kind" "sim-seeds-$first-to-$((first + count - 1))" 1800 "$build/tests/sim/sim" "$first" "$count"
	done
	add check sim-deaths 600 "$build/tests/sim/sim" --deaths
	add check sim-split 600 "$build/tests/sim/sim" --split
	add check sim-sites 600 "$build/tests/sim/sim" --sites 1 100
	add check sim-members 600 "$build/tests/sim/sim" --members 1 200
	[ -n "$san" ] || add release model 3600 tests/model/run.sh
	[ -n "$san" ] || add release sim-second-deaths 3600 "$build/tests/sim/sim" --deaths 1999
	[ -n "$san" ] || add release sim-members-more 3600 "$build/tests/sim/sim" --members 201 1000
	[ -n "$san" ] || add release sim-sites-more 3600 "$build/tests/sim/sim" --sites 101 1000
	[ -n "$san" ] || add release sim-breaker 1200 "$build/tests/sim/sim" --breaker
	[ -n "$san" ] || add release sim-share 1800 "$build/tests/sim/sim" --share
fi
# Fuzzers are built with clang and sanitizers of their own, so once is enough.
[ -n "$san" ] || add release fuzz-build 900 tests/fuzz/run.sh 0 build/fuzz
for test in $([ -n "$san" ] || echo tests/fuzz/fuzz_*.c); do
	name=$(basename "$test" .c)
	add release "${name/_/-}" 600 tests/fuzz/run.sh 5 build/fuzz "${name#fuzz_}"
done
late=${#names[@]}
for test in "${scripts[@]}"; do
	! marked late "$test" || add_script "$test"
done
all=${#names[@]}

# ---- all of it ----

start_lane() { # priority FIRST:END..
	lane "$@" &
	lanes+=($!)
}
start_lane 0 "0:$hosts"
start_lane 0 "$hosts:$turn" "after:$waiting:$built" "$turn:$contained" "0:$hosts"
start_lane 0 "$contained:$waiting" "0:$hosts"
start_lane 19 "after:$hosts:$long" "$built:$late"
if [ "$built" -gt "$waiting" ]; then
	start_lane 19 "$waiting:$built" "$shared:$late"
else
	start_lane 19 "after:0:$waiting" "$shared:$late"
fi
await 0 "$waiting" "${lanes[@]:0:3}"
start_lane 0 "$late:$all"
await "$late" "$all" "${lanes[5]}"
await "$waiting" "$late" "${lanes[@]:3:2}"
wait "${lanes[@]}" 2>/dev/null # those that are not known any more have ended
run_again
wait "${lanes[@]}" 2>/dev/null
lanes=()
for i in "${!names[@]}"; do
	[ -n "${reported[i]}" ] || report "${names[i]}" "not run" 0 0 aside
done

[ ${#names[@]} = 0 ] || slowest 8
[ ${#unsteady[@]} = 0 ] || echo "unsteady: ${unsteady[*]} failed beside others and passed alone"
listed=" ${names[*]} "
for pattern in "${only[@]}"; do
	[[ $listed = *\ $pattern\ * ]] || { echo "no test is called $pattern" && failed=$((failed + 1)); }
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
