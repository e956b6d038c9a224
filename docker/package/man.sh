#!/usr/bin/env bash
# man.sh BUILD OUT - man pages of winnowd and of each winnow command, made of their --help-all
set -euo pipefail
build=$1 out=$2
here=$(dirname "$0")
. "$here/../target.sh"
version=$("${run[@]}" "$build/winnowd" --version | cut -d' ' -f2)
mkdir -p "$out/man1" "$out/man8"

page() { # name section what command..
	local file=$out/man$2/$1.$2
	"${run[@]}" "${@:4}" --help-all | awk -v name="$1" -v section="$2" -v version="$version" -v what="$3" -f "$here/man.awk" >"$file"
	[ ! -e "$here/$1.roff" ] || cat "$here/$1.roff" >>"$file"
}

page winnowd 8 "aggregator of sparse gradients" "$build/winnowd"
page winnow 1 "measure, watch and mend Winnow" "$build/winnow"
printf '.SH SEE ALSO\n.BR winnowd (8)' >>"$out/man1/winnow.1"
"${run[@]}" "$build/winnow" --help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) *\(.*\)/\1 \2/p' | while read -r command what; do
	page "winnow-$command" 1 "$what" "$build/winnow" "$command"
	printf ',\n.BR winnow\\-%s (1)' "$command" >>"$out/man1/winnow.1"
done
echo >>"$out/man1/winnow.1"
