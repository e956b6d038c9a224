# shellcheck shell=bash disable=SC2034
# target.sh - for scripts that look at what was built, for this machine's processor or for another one
#
#   CROSS, SYSROOT  that processor, and the folder with its Debian, as `make CROSS=..` exports them; else empty
#   run             an array: what runs that processor's programs here
#   loads FILE..    the libraries that these programs and objects load, each as NAME PATH, without SYSROOT
CROSS=${CROSS:-} SYSROOT=${SYSROOT:-}
run=()
[ -z "$CROSS" ] || run=("qemu-${CROSS%%-*}-static" -L "$SYSROOT")
loads() {
	local file list=(ldd)
	[ -z "$CROSS" ] || list=("${run[@]}" "$SYSROOT"/lib/ld-linux-*.so.1 --list)
	for file; do "${list[@]}" "$file"; done | sed "s|$SYSROOT/|/|g" | awk '
		/=> not found/ { print $1 " is missing" >"/dev/stderr"; exit 1 }
		$1 ~ "^/" { print $1, $1; next }
		$2 == "=>" && $3 ~ "^/" { print $1, $3 }' | sort -u
}
