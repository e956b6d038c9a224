#!/usr/bin/env bash
# Workers that disagree: the job ends on all of them, with one line that names two ranks.
. "$(dirname "$0")/lib.sh"
winnowd --insecure-no-key --threads 2

differ() { # pattern, arguments of ranks 0 and 2, arguments of rank 1
	local pattern=$1 rank theirs
	for rank in 0 1 2; do
		theirs=$2
		[ $rank = 1 ] && theirs=$3
		# shellcheck disable=SC2086 # lists of options
		start "r$rank" bench --job "m$RANDOM$SECONDS" --insecure-no-key --rank $rank --world 3 --iters 1 --warmup 0 \
			--job differ $theirs
	done
	for rank in 0 1 2; do
		expect "r$rank" 20 1 "$pattern"
		rm -f "$tmp/r$rank".*
	done
}
both='on rank [02] and .* on rank 1|on rank 1 and .* on rank [02]'
differ "count is .*($both)" '--size 1M' '--size 2M'
differ "count is .*($both)" '--size 4K' '--size 1M'
differ "count is .*($both)" '--size 4K' '--size 2K'
differ "dtype is (f32|i32) .*($both)" '--size 1M' '--size 1M --dtype i32'
differ "block is (64|256) .*($both)" '--size 1M' '--size 1M --block 64'
differ "operation is (sum|max) .*($both)" '--size 1M' '--size 1M --op max'
differ "wire form is (native|fixed32) .*($both)" '--size 1M --wire f32' '--size 1M --wire fixed32'

# The daemon has forgotten them all and works.
start a bench --insecure-no-key --rank 0 --world 2 --size 1M --check --iters 2
start b bench --insecure-no-key --rank 1 --world 2 --size 1M --check --iters 2
expect a 20 0
expect b 20 0
echo "each named"
