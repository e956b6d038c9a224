#!/usr/bin/env bash
# check_layers.sh - fail when a file includes a header of a folder that it may not depend on
#
# The table below is the whole dependency graph of the project; it has no cycle. docs/ARCHITECTURE.md
# draws it. aggregator/net and aggregator/control are the parts that client/ shares; bitmap/why.h, which
# stands on nothing, is everybody's. Folders that are pure know neither sockets, clocks, threads nor
# chance: what they are told is all they know.
set -euo pipefail
cd "$(dirname "$0")/.."

allowed() {
	case $1 in
	bitmap) echo bitmap ;;
	ebpf) echo ebpf ;;
	kernels) echo kernels bitmap ebpf/deal.h ;;
	aggregator/net | aggregator/net/dpdk) echo aggregator/net ;;
	aggregator/control) echo aggregator/control ebpf ;;
	aggregator/channel) echo aggregator/channel ebpf bitmap ;;
	aggregator/jobs) echo aggregator/jobs aggregator/channel aggregator/control aggregator/net/net.h ebpf ;;
	aggregator | aggregator/http) echo aggregator ebpf bitmap ;;
	client/worker) echo client/worker client/winnow.h aggregator/control ebpf bitmap ;;
	client/trace) echo client/trace client/worker aggregator/control ebpf bitmap ;;
	client/gpu) echo client/gpu client/worker client/winnow.h aggregator/net/net.h bitmap kernels ;;
	client/comm) echo client/comm client/gpu client/trace client/worker client/winnow.h aggregator/net aggregator/control ebpf bitmap kernels ;;
	client/node) echo client/node client/comm client/gpu client/winnow.h aggregator/control bitmap kernels ;;
	client/cli/*) echo client aggregator/net aggregator/control ebpf bitmap ;;
	client/cli) echo client aggregator/net aggregator/control ebpf bitmap kernels ;;
	tests) echo tests client aggregator kernels bitmap ebpf ;;
	esac
}
pure=(aggregator/channel aggregator/jobs client/worker)

status=0
check() { # folder files..
	local folder=$1 file header prefix ok
	shift
	while IFS=: read -r file header; do
		[ -n "$file" ] || continue
		ok=false
		for prefix in bitmap/why.h $(allowed "$folder"); do
			case $header in "$prefix" | "$prefix"/*) ok=true ;; esac
		done
		# The daemon's own headers are not the client's, though they lie in the folder above.
		if ! $ok; then
			echo "$file includes $header: $folder/ may not" >&2
			status=1
		fi
	done < <(grep -HoE '#[[:space:]]*include "[^"]+"' "$@" | sed -E 's/#[[:space:]]*include "([^"]+)"/\1/')
}

mapfile -t folders < <(git ls-files bitmap ebpf kernels client aggregator | grep -E '\.(c|h|cu)$' | xargs -n 1 dirname | sort -u)
for folder in "${folders[@]}" tests; do
	depth=$([ "$folder" = tests ] && echo 9 || echo 1)
	mapfile -t files < <(find "$folder" -maxdepth "$depth" -name '*.[ch]' -o -maxdepth "$depth" -name '*.cu' -o -maxdepth "$depth" -name '*.cc')
	[ ${#files[@]} -eq 0 ] || check "$folder" "${files[@]}"
done
# shellcheck disable=SC2046 # lists of files
if grep -HnE '#[[:space:]]*include <(sys/|net|arpa/|linux/|poll|pthread|threads|time|unistd|fcntl|signal|uv|sodium|event)' \
	$(printf '%s/*.[ch] ' "${pure[@]}") | grep -v '<sys/queue.h>'; then # which is macros alone
	echo "these folders are pure: ${pure[*]}" >&2
	status=1
fi

# Nobody includes by a path that the table does not see.
if grep -rsnE '#[[:space:]]*include "(\.\.|[a-z_0-9.]+\.h")' --include='*.[ch]' --include='*.cu' --include='*.cc' \
	bitmap ebpf kernels aggregator client tests; then
	echo "includes are written from the top folder: \"bitmap/bitmap.h\"" >&2
	status=1
fi

# File names are unique in the whole tree, so that a name is enough to find it.
twice=$(git ls-files '*.c' '*.h' '*.cu' '*.cc' | sed 's|.*/||' | sort | uniq -d)
if [ -n "$twice" ]; then
	echo "two files are called: $twice" >&2
	status=1
fi
exit $status
