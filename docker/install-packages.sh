#!/usr/bin/env bash
# install-packages.sh GROUP.. - install what the groups of packages.txt name and this machine lacks
#
# Prints one line when there is something to install, nothing otherwise. Needs apt; root or sudo.
set -euo pipefail
list=$(dirname "$0")/packages.txt
exec 9<"$list"
flock 9 # apt does not wait for another apt
missing=()
for group in "$@"; do
	line=$(grep "^$group:" "$list") || {
		echo "install-packages.sh: no group '$group' in $list" >&2
		exit 2
	}
	for package in ${line#*:}; do
		state=$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null || true)
		[[ $state == ii* ]] || missing+=("$package")
	done
done
[ ${#missing[@]} -gt 0 ] || exit 0

mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
if ! command -v apt-get >/dev/null; then
	echo "missing: ${missing[*]} - install them by hand: this system has no apt-get" >&2
	exit 1
fi
as_root=()
if [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null || {
		echo "missing: ${missing[*]} - run as root: apt-get install ${missing[*]}" >&2
		exit 1
	}
	as_root=(sudo)
fi
echo "Installing from Debian, for $(printf "%s, " "$@" | sed "s/, $//"): ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! {
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q &&
		"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}"
} </dev/null >"$log" 2>&1 9<&-; then
	tail -n 5 "$log" >&2
	echo "install-packages.sh: apt-get failed; mend that and run again" >&2
	exit 1
fi
