#!/usr/bin/env bash
# no-sanitizers: what is preloaded would come before them
# bench --check says that a result is wrong: one bit of it, wherever it is, and whatever it should have been.
. "$(dirname "$0")/lib.sh"
gcc -shared -fPIC -O2 -I. -o "$tmp/wrong_result.so" tests/e2e/wrong_result.c -ldl || fail "wrong_result.c does not compile"
winnowd --insecure-no-key

bad=1 # whose results are wrong
job() { # name, OFFSET:MASK or -, bench's options..: ranks 0 and 1; the status of the bad one
	local rank wrong
	for rank in 0 1; do
		wrong=()
		[ $rank != $bad ] || [ "$2" = - ] || wrong=("LD_PRELOAD=$tmp/wrong_result.so" "WRONG_BYTE=$2")
		start "$1$rank" env "${wrong[@]}" "$BUILD/winnow" bench --aggregators "$HOST:$PORT" --insecure-no-key --job "$1" --rank $rank --world 2 --iters 2 "${@:3}"
	done
	expect "$1$((1 - bad))" 60 0
	finish "$1$bad" 60
	status=$?
}

found() { # name, OFFSET:MASK, options..: one element is wrong, and only rank 1 says so
	job "$@" --check --json
	[ $status = 1 ] || fail "$*: exit status $status though a result is wrong"
	[ "$(json "$tmp/${1}1.out" errors) $(json "$tmp/${1}0.out" errors)" = "1 0" ] || fail "$*: errors: $(cat "$tmp/${1}1.out")"
}

job right - --size 1M --check --json
[ $status = 0 ] || fail "a right result is no success"
[ "$(json "$tmp/right1.out" errors)" = 0 ] || fail "a right result has errors"
found first 0:40 --size 1M
found last 1048575:40 --size 1M
found middle 524290:40 --size 1M # the highest bit of the fraction
found low 524289:40 --size 1M    # what rounding would not do
found nobody 524290:40 --size 1M --density 0
found sparse 3:40 --size 1M --density 0.01 --overlap none
found fixed 524290:40 --size 1M --wire fixed32
found half 524289:02 --size 1M --dtype f16
found brain 524288:40 --size 1M --dtype bf16
found double 524293:40 --size 1M --dtype f64
found whole 524288:01 --size 1M --dtype i32
found long 524288:01 --size 1M --dtype i64
found least 524290:40 --size 1M --op min
found most 524290:40 --size 1M --op max
found mean 524290:40 --size 1M --op avg
found product 524290:40 --size 1M --op prod
found place 524290:40 --size 1M --in-place

# --local: whichever worker it is, the command's exit status and one line say it.
for rank in 1 2; do
	refuses 1 "^winnow bench: rank $rank has 2 wrong elements$" env "LD_PRELOAD=$tmp/wrong_result.so" "WRONG_RANK=$rank" WRONG_BYTE=3:40 "$BUILD/winnow" bench --local 3 --size 64K,128K --iters 2 --check
done
refuses 137 '^winnow bench: worker 2 was killed by signal 9; the other workers are being ended$' env "LD_PRELOAD=$tmp/wrong_result.so" WRONG_RANK=2 WRONG_END=9 "$BUILD/winnow" bench --local 3 --size 64K --iters 2
# One that cannot begin: the others do not wait for it.
refuses 1 '^winnow bench: cannot start processes: Resource temporarily unavailable$' env "LD_PRELOAD=$tmp/wrong_result.so" WRONG_FORK=4 "$BUILD/winnow" bench --local 4 --size 64K
! LD_PRELOAD=$tmp/wrong_result.so WRONG_BYTE=3:40 "$BUILD/winnow" doctor --aggregators "127.0.0.1:$PORT" --insecure-no-key >"$tmp/doctor.out" ||
	fail "doctor does not see that sums are wrong"
grep -q '^FAIL  aggregator .*joined, but its sums are wrong$' "$tmp/doctor.out" || fail "doctor: $(cat "$tmp/doctor.out")"
refuses 1 '^winnow bench: .*memory' env "LD_PRELOAD=$tmp/wrong_result.so" WRONG_RANK=0 WRONG_MEMORY=yes "$BUILD/winnow" bench --local 1 --size 64K

# The table, which rank 0 prints, says it, and each row counts.
bad=0
job table 3:40 --size 1M,64K --density 1,0.1 --check
[ $status = 1 ] || fail "exit status $status though all rows are wrong"
[ "$(awk '$NF == 1' "$tmp/table0.out" | wc -l)" = 4 ] || fail "the table does not say so: $(cat "$tmp/table0.out")"
job one 524290:40 --size 1M,64K --check
[ $status = 1 ] || fail "exit status $status though the first row is wrong"
job right - --size 1M,64K --check
[ $status = 0 ] || fail "a right result is no success"
[ "$(awk '$NF == 0' "$tmp/right0.out" | wc -l)" = 2 ] || fail "the table says that right is wrong: $(cat "$tmp/right0.out")"
# A sweep: in both places, the line below, and JSON, where a row's errors are those of both.
job sweep 3:40 -b 64K -e 1M -f 4 --check
[ $status = 1 ] || fail "exit status $status though a sweep's rows are wrong"
[ "$(awk '!/^#/ && $9 == 1 && $13 == 1' "$tmp/sweep0.out" | wc -l)" = 3 ] || fail "the sweep does not say so: $(cat "$tmp/sweep0.out")"
grep -q '^# Out of bounds values : 6 FAILED$' "$tmp/sweep0.out" || fail "the sweep's sum: $(cat "$tmp/sweep0.out")"
job sweep 524290:40 -b 64K -e 1M -f 16 --check --json
[ $status = 1 ] || fail "exit status $status though a sweep's last row is wrong"
[ "$(json "$tmp/sweep0.out" errors) $(json "$tmp/sweep0.out" in_place.errors)" = "2 1" ] ||
	fail "the sweep's errors: $(cat "$tmp/sweep0.out")"
# Nobody has asked.
job unasked 3:40 --size 1M
[ $status = 0 ] || fail "exit status $status without --check"
grep -q 'N/A' "$tmp/unasked0.out" || fail "without --check it says that nothing was wrong: $(cat "$tmp/unasked0.out")"
echo "what is wrong is seen"
