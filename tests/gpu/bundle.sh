#!/usr/bin/env bash
# bundle.sh FOLDER - add to the programs in FOLDER what another machine may lack: libraries, scripts, the package
#
# The C and C++ libraries are not copied, because newer ones run programs linked with older ones. Scripts keep their
# relative places, so that FOLDER serves them as repository and build folder.
set -euo pipefail
folder=$1
theirs='^(linux-vdso|ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libresolv|libstdc[+][+]|libgcc_s)[.]so[.][0-9]+$'

# What is no program, as the results of an earlier run, loads nothing: ldd says so, and fails.
needed() { # names and places of what our objects in FOLDER load, but for theirs
	{ find "$folder" -maxdepth 1 -type f ! -name 'lib*.so.*' -exec ldd {} + 2>/dev/null || true; } |
		awk -v theirs="$theirs" '$2 == "=>" && $1 !~ theirs { print $1, $3 }' | sort -u
}

needed | while read -r name path; do
	[ -e "$folder/$name" ] || install -m 644 "$path" "$folder/$name"
done
if needed | awk -v folder="$(realpath "$folder")/" 'index($2, folder) != 1 { print "bundle.sh: " $1 " is from " $2; bad = 1 } END { exit !bad }' >&2; then
	exit 1
fi
rm -rf "$folder/tests" "$folder/client"
for file in tests/report.sh tests/gpu/*.sh tests/gpu/*.py tests/python/{harness,ports,test_failures}.py client/python/winnow/*.py; do
	mkdir -p "$folder/$(dirname "$file")"
	cp "$file" "$folder/$file"
done
du -sh "$folder" | awk '{ print $2 ": " $1 }'
