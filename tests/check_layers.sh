#!/usr/bin/env bash
# check_layers.sh - fail when a file includes what stands on its own floor or above
#
# The list below is the house, from the ground up: a folder may include itself and the floors under it; folders
# joined by "+" are one. The aggregator's half and the client's never include each other, but a site's, which is a
# worker to its parent: what both need stands below them. docs/ARCHITECTURE.md draws it. Folders that are pure know neither sockets, clocks, threads nor
# chance: what they are told is all they know.
set -euo pipefail
cd "$(dirname "$0")/.."

floors=(
	"bitmap"
	"ebpf"
	"bitmap/net bitmap/control"
	"kernels aggregator/channel aggregator/dpdk client/worker"
	"aggregator/jobs client/gpu client/trace"
	"aggregator/site"
	"aggregator+aggregator/http client/comm"
	"client/node client/cli"
	"client/cli/bench client/cli/doctor client/cli/status client/cli/tune"
	"tests"
)
pure=(aggregator/channel aggregator/jobs aggregator/site client/worker)
public=client/winnow.h # stands on nothing

status=0
declare -A floor house
for i in "${!floors[@]}"; do
	for joined in ${floors[i]}; do
		for folder in ${joined//+/ }; do floor[$folder]=$i house[$folder]=$joined; done
	done
done

may() { # folder other: may files of the one include headers of the other?
	[ "${house[$1]}" != "${house[$2]}" ] || return 0
	[ "${floor[$2]}" -lt "${floor[$1]}" ] || return
	case $1,$2 in aggregator/site,client/worker | aggregator,client/worker) return ;; esac
	case ${1%%/*},${2%%/*} in aggregator,client | client,aggregator) return 1 ;; esac
}
while IFS=: read -r file header; do
	[ "$header" != "$public" ] || continue
	folder=$(dirname "$file") other=$(dirname "$header")
	case $folder in tests*) folder=tests ;; esac
	case $other in tests*) other=tests ;; esac
	[ -e "$header" ] || continue # made by the build
	if [ -z "${floor[$folder]-}" ] || [ -z "${floor[$other]-}" ]; then
		echo "$file includes $header: a folder is on no floor" >&2
		status=1
	elif ! may "$folder" "$other"; then
		echo "$file includes $header: $folder may not" >&2
		status=1
	fi
done < <(git ls-files '*.c' '*.h' '*.cu' '*.cc' | xargs grep -HoE '#[[:space:]]*include "[^"]+"' | sed -E 's/#[[:space:]]*include "([^"]+)"/\1/')

# shellcheck disable=SC2046 # lists of files
if grep -HnE '#[[:space:]]*include <(sys/|net|arpa/|linux/|poll|pthread|threads|time|unistd|fcntl|signal|uv|openssl/|event)' \
	$(printf '%s/*.[ch] ' "${pure[@]}") | grep -v '<sys/queue.h>'; then # which is macros alone
	echo "these folders are pure: ${pure[*]}" >&2
	status=1
fi

# Nobody includes by a path that the list does not see.
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
