#!/usr/bin/env bash
# deb.sh BUILD VERSION - BUILD/winnow_VERSION_ARCH.deb, of what `make install` installs, the Python package and /etc/winnow
set -euo pipefail
build=$1 version=$2
maintainer=${MAINTAINER:-The Winnow authors <winnow@localhost>}
here=$(dirname "$0")
. "$here/../target.sh"
eval "$(dpkg-architecture ${CROSS:+-t "$CROSS"} -s 2>/dev/null)" # Debian's names for the processor, for dpkg's tools
arch=$DEB_HOST_ARCH
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
stage=$root/stage
umask 022
libraries=usr/lib/$DEB_HOST_MULTIARCH
make --no-print-directory -s install BUILD="$build" PREFIX=/usr LIBDIR="/$libraries" DESTDIR="$stage" >&2

python=$stage/usr/lib/python3/dist-packages/winnow
doc=$stage/usr/share/doc/winnow
install -d "$python" "$doc/examples" "$stage/etc/winnow" "$stage/DEBIAN"
install -m 644 client/python/winnow/*.py client/python/winnow/py.typed "$python/"
install -m 644 docker/systemd/winnow.ini "$stage/etc/winnow/"
install -m 644 docker/systemd/winnowd-xdp.conf "$doc/examples/"
install -m 644 LICENSE "$doc/copyright"
find "$stage/usr/share/man" -type f -exec gzip -9n {} +
find "$stage/usr/bin" "$stage/usr/lib" -maxdepth 3 -type f \( -name 'winnow*' -o -name '*.so*' \) -exec sh -c '
	for file; do ! head -c 4 "$file" | grep -q ELF || "$0" --strip-unneeded --remove-section=.comment "$file"; done' "${CROSS:+$CROSS-}strip" {} +
install -D -m 644 "$here/lintian-overrides" "$stage/usr/share/lintian/overrides/winnow"
printf '%s\n' "winnow ($version) unstable; urgency=medium" "" "  * What is new: see the project's history." "" \
	" -- $maintainer  $(date -R -u -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}")" | gzip -9n >"$doc/changelog.gz"

# What the binaries are linked with, by the packages that they were built with.
mkdir "$root/debian"
printf 'Source: winnow\n\nPackage: winnow\nArchitecture: any\n' >"$root/debian/control"
depends() { # folder, find's arguments..: what the ELF files there need
	local files list
	mapfile -t files < <(find "$@" -type f -exec sh -c 'head -c 4 "$1" | grep -q ELF' sh {} \; -print 2>/dev/null)
	[ ${#files[@]} -gt 0 ] || return 0
	list=$(cd "$root" && dpkg-shlibdeps --ignore-missing-info -l"$stage/$libraries" ${SYSROOT:+-S"$SYSROOT"} -O "${files[@]}" 2>"$root/log" | sed -n 's/^shlibs:Depends=//p')
	[ -n "$list" ] || { cat "$root/log" >&2; exit 1; }
	echo "$list"
}
needs=$(depends "$stage/usr/bin" "$stage/usr/lib" -path "$stage/usr/lib/winnow" -prune -o)
[ -n "$needs" ] || exit 1
# Data paths that winnowd loads if it is told to are there for those who have their libraries; DPDK opens its drivers by name.
# What everybody has, or the package itself depends on, is no suggestion.
may_need=$(depends "$stage/usr/lib/winnow" -name '*.so' | awk -v RS=', *|\n' -v needs="$needs" '
	BEGIN { for (i = split(needs, one, /, */); i > 0; i--) { sub(/ .*/, "", one[i]); known[one[i]] = 1 } known["libgcc-s1"] = known["libstdc++6"] = 1 }
	NF && !($1 in known) { printf "%s%s", between, $0; between = ", " }')

cat >"$stage/DEBIAN/control" <<C
Package: winnow
Version: $version
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $(du -sk "$stage" | cut -f1)
Depends: $needs
Suggests: python3, python3-torch, python3-numpy, gnuplot-nox${may_need:+, $may_need, librte-meta-net, librte-meta-mempool}
${HOMEPAGE:+Homepage: $HOMEPAGE
}Section: net
Priority: optional
Description: allreduce for gradients that are mostly zeros
 Workers of a distributed training job send only the blocks of their gradients
 that hold a non-zero value; an aggregator, winnowd, adds them and streams the
 sums back. The package has the aggregator, the command winnow, the library with
 its header, and the Python package with the hook for PyTorch.
C
echo /etc/winnow/winnow.ini >"$stage/DEBIAN/conffiles"
echo 'activate-noawait ldconfig' >"$stage/DEBIAN/triggers"
library=$(basename "$stage/$libraries"/libwinnow.so.*)
echo "libwinnow ${library##*.} winnow (>= $version)" >"$stage/DEBIAN/shlibs"
(cd "$stage" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$stage/DEBIAN/md5sums"
install -m 755 "$here/postinst" "$here/prerm" "$here/postrm" "$stage/DEBIAN/"
dpkg-deb --root-owner-group -Zxz --build "$stage" "$build/winnow_${version}_$arch.deb" >/dev/null
echo "$build/winnow_${version}_$arch.deb"
