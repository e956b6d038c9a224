#!/usr/bin/env bash
# A matrix of which one column in 20 is not zero, through the C interface: in tiles only those columns travel. Tiles that differ, which ends the job, or cannot be, are one line on each worker.
. "$(dirname "$0")/lib.sh"
winnowd --insecure-no-key --threads 2
export WINNOW_AGGREGATORS=$HOST:$PORT WINNOW_INSECURE_NO_KEY=1

differs='do not agree on the operation: .* on rank (0 and .*rank 1|1 and .*rank 0)'

run() { # exit status, pattern for stderr or "", ROWS COLUMNS, tiles of rank 0, of rank 1
	local rank status=0 tile
	for rank in 0 1; do
		read -ra tile <<<"$([ $rank = 0 ] && echo "$5" || echo "$6")"
		WINNOW_JOB=tiles timeout 60 "$BUILD/tests/e2e/tiles" $rank 2 "$3" "$4" "${tile[@]}" >"$tmp/$rank.out" 2>"$tmp/$rank.err" &
		pids[rank]=$!
	done
	for rank in 0 1; do
		wait "${pids[rank]}"
		status=$?
		[ $status = "$1" ] || fail "rank $rank of $*: exit status $status: $(cat "$tmp/$rank".*)"
		[ "$2" = "$differs" ] || grep -q ' 0 wrong$' "$tmp/$rank.out" || fail "rank $rank of $*: $(cat "$tmp/$rank".*)"
		[ "$(wc -l <"$tmp/$rank.err")" = "$1" ] || fail "rank $rank of $*: not one line: $(cat "$tmp/$rank.err")"
		grep -qE "$2" "$tmp/$rank.err" "$tmp/$rank.out" || fail "rank $rank of $*: not /$2/: $(cat "$tmp/$rank.err")"
	done
}
sent() { # of rank 0
	sed 's/ .*//' "$tmp/0.out"
}
pids=()

run 0 wrong 4096 4096 '0 0' '0 0'
flat=$(sent)
run 0 wrong 4096 4096 '1024 1' '1024 1'
tiles=$(sent)
run 0 wrong 4096 4096 '64 4' '64 4'
wide=$(sent)
# 205 columns of 4,096 f32 are 3.36 MB, and with headers not 5 % more; in blocks of 256 all of the 67 MB travel.
[ "$tiles" -lt $((205 * 4096 * 4 * 105 / 100)) ] || fail "$tiles bytes in tiles"
[ "$wide" -lt $((4 * 205 * 4096 * 4 * 105 / 100)) ] || fail "$wide bytes in tiles of 4 columns"
[ "$flat" -gt $((4096 * 4096 * 4)) ] || fail "$flat bytes in blocks"

# At the edges; as high, or as wide, as the matrix; as a whole too small to be worth any.
for shape in '1000 999 33 7' '1000 999 5000 3' '1000 64 100 500' '3 5 2 2' '1 70000 8 16' '70000 1 256 3'; do
	read -r rows columns tile <<<"$shape"
	run 0 wrong "$rows" "$columns" "$tile" "$tile"
done

run 1 "$differs" 1000 999 '33 7' '34 7'
run 1 "$differs" 1000 999 '32 8' '64 4' # blocks of the same size
run 1 "$differs" 1000 999 '32 8' '0 0'
run 1 'more than 65536 elements' 2000 2000 '1000 66' '1000 66'
run 1 'one of the two is 0' 100 100 '8 0' '8 0'
echo "4096 x 4096, 5 %: $flat bytes in blocks of 256, $tiles in tiles of 1024 x 1, $wide in tiles of 64 x 4"
