#!/usr/bin/env bash
# closure.sh ROOT STAGE PROGRAM.. - a file system ROOT with the programs of STAGE, what they load, and this system's libraries for that
set -euo pipefail
root=$1 stage=$2
shift 2
mkdir -p "$root/etc" "$root/tmp"
chmod 1777 "$root/tmp"
printf 'root:x:0:0::/:\nwinnow:x:65532:65532::/:\n' >"$root/etc/passwd"
files=("$@" /usr/lib/libwinnow.so.0)
for file in "${files[@]}"; do install -D "$stage$file" "$root$file"; done
# A library goes to where the dynamic linker looks first; the linker itself to where the programs name it.
for file in "${files[@]}"; do
	ldd "$stage$file" | awk '$2 == "=>" { print $3 } $1 ~ "^/" { print $1 }'
done | sort -u | grep -v "^$stage" | while read -r library; do
	install -D "$(realpath "$library")" "$root$library"
done
