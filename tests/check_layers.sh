#!/usr/bin/env bash
# check_layers.sh - fail when a file includes a header of a folder that it may not depend on
#
# The table below is the whole dependency graph of the project; it has no cycle. docs/ARCHITECTURE.md
# draws it. aggregator/net and aggregator/control are the parts that client/ shares.
set -euo pipefail
cd "$(dirname "$0")/.."

allowed() {
	case $1 in
	bitmap) echo bitmap ;;
	ebpf) echo ebpf ;;
	kernels) echo kernels bitmap ebpf/deal.h ;;
	aggregator/net | aggregator/net/dpdk) echo aggregator/net ;;
	aggregator/control) echo aggregator/control ebpf ;;
	aggregator) echo aggregator ebpf bitmap ;;
	client) echo client aggregator/net aggregator/control ebpf bitmap kernels ;;
	tests) echo tests client aggregator kernels bitmap ebpf ;;
	esac
}

status=0
check() { # folder files..
	local folder=$1 file header prefix ok
	shift
	while IFS=: read -r file header; do
		[ -n "$file" ] || continue
		ok=false
		for prefix in $(allowed "$folder"); do
			case $header in "$prefix" | "$prefix"/*) ok=true ;; esac
		done
		# The daemon's own headers are not the client's, though they lie in the folder above.
		if ! $ok; then
			echo "$file includes $header: $folder/ may not" >&2
			status=1
		fi
	done < <(grep -HoE '#[[:space:]]*include "[^"]+"' "$@" | sed -E 's/#[[:space:]]*include "([^"]+)"/\1/')
}

for folder in bitmap ebpf kernels client tests; do
	mapfile -t files < <(find "$folder" -name '*.[ch]' -o -name '*.cu' -o -name '*.cc' 2>/dev/null)
	[ ${#files[@]} -eq 0 ] || check "$folder" "${files[@]}"
done
for folder in aggregator/net aggregator/net/dpdk aggregator/control aggregator; do
	mapfile -t files < <(find "$folder" -maxdepth 1 -name '*.[ch]' 2>/dev/null)
	[ ${#files[@]} -eq 0 ] || check "$folder" "${files[@]}"
done

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
