#!/usr/bin/env bash
# All states of members.pml within these bounds; each rule that is left out, and version 2's rules, must be found. QUICK=1: the part that takes seconds
# release: ten minutes of a CPU, 4 GB
set -euo pipefail
for tool in spin gcc; do
	command -v $tool >/dev/null || { echo "no $tool"; exit 77; }
done
here=$(realpath "$(dirname "$0")")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
look() { # WANT OPTION..: "errors: 0", or how many are expected to be found
	local want=$1 dir
	shift
	dir=$(mktemp -d "$tmp/XXXX")
	cd "$dir"
	spin "$@" -a "$here/members.pml" >spin.out || { cat spin.out; exit 1; }
	gcc -O2 -w -DNOREDUCE -DCOLLAPSE -DSAFETY -DMEMLIM=8000 -o pan pan.c
	./pan -m400000 >out 2>&1
	if ! grep -q "errors: $want" out || grep -q 'max search depth too small\|out of memory' out; then
		tail -n 30 out
		echo "failed: $*"
		exit 1
	fi
	echo "$*: errors: $want,$(grep 'states, stored' out | head -n 1)"
}
for hole in 2 3 4; do look 1 -DN=2 -DFAULTS=2 -DHOLE=$hole; done
look 1 -DN=2 -DFAULTS=2 -DHOLE=1 -DHASTY
look 1 -DN=2 -DFAULTS=3 -DHOLE=0 -DV2
look 0 -DN=2 -DFAULTS=2 -DHOLE=0
[ -z "${QUICK:-}" ] || exit 0
look 0 -DN=2 -DFAULTS=3 -DHOLE=0
look 0 -DN=3 -DFAULTS=2 -DHOLE=0
look 0 -DN=2 -DFAULTS=2 -DHOLE=0 -DHASTY
