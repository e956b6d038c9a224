#!/usr/bin/env bash
# libraries.sh FOLDER FILE.. - into FOLDER, the libraries that these programs and objects load and a machine may lack, with their licences
#
# What every glibc machine has stays out: the C library's own, the compiler's, zlib. That is auditwheel's list (manylinux).
set -euo pipefail
folder=$1
shift
. "$(dirname "$0")/../target.sh"
rm -rf "$folder"/lib*.so.[0-9]* "$folder/licenses"
mkdir "$folder/licenses"
loads "$@" |
	grep -vE '^(lib(c|m|dl|rt|pthread|resolv|util|anl|gcc_s|stdc\+\+|z)\.so|libwinnow\.so|/)' |
	while read -r name path; do
		cp -L "$SYSROOT$path" "$folder/$name"
		# Debian has each library's licence beside its package; elsewhere there is none to be found so simply.
		package=$(dpkg -S "*/$(basename "$(realpath "$SYSROOT$path")")" 2>/dev/null | head -n 1 | cut -d: -f1) || continue
		[ ! -e "$SYSROOT/usr/share/doc/$package/copyright" ] || cp -L "$SYSROOT/usr/share/doc/$package/copyright" "$folder/licenses/$package"
	done
