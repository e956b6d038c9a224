#!/usr/bin/env bash
# image.sh STEP - steps of an image's build, in /src, for the processor that the image is for: TARGETARCH
#
#   packages [GROUP..]   GROUP.. of packages.txt, and what it takes to build for a processor that the builder does not have
#   deb                  the package: /src/winnow_VERSION_ARCH.deb
#   root FOLDER FILE..   the root of an image that has these programs of the package, and nothing else
#   debian FOLDER GROUP  the root of an image that has this group of packages.txt, to which the package can be added
#
# A builder with another processor compiles across, so it need not run that processor's programs by itself.
set -euo pipefail
cd /src
here=$(dpkg --print-architecture) CROSS=
case ${TARGETARCH:-$here} in
"$here") ;;
arm64) CROSS=aarch64-linux-gnu ;;
*)
	echo "image.sh: cannot build for $TARGETARCH on $here" >&2
	exit 1
	;;
esac
export CROSS SYSROOT=${CROSS:+/src/build/$CROSS/root}
case $1 in
packages)
	if [ -n "$CROSS" ]; then
		docker/install-packages.sh cross
		docker/arm64-root.sh "$SYSROOT" "${@:2}"
	else
		docker/install-packages.sh "${@:2}"
	fi
	;;
deb)
	make -j"$(nproc)" CFLAGS=-O2 deb # the package has nothing that only a debugger reads
	mv "build/$CROSS"/winnow_*.deb .
	;;
root)
	dpkg -x winnow_*.deb /stage
	docker/closure.sh "$2" /stage "${@:3}"
	;;
debian)
	. docker/debian.sh
	debian_unpack "$2" "${TARGETARCH:-$here}" "$(sed -n "s/^$3: //p" docker/packages.txt)"
	# The packages' own scripts would choose the linear algebra and compile Python's modules. PyTorch brings OpenCV, and that
	# drivers for screens and their compiler, which no worker uses.
	for library in "$2"/usr/lib/*/{blas,lapack}/lib*.so.3; do ln -sr "$library" "${library%/*/*}/"; done
	printf 'root:x:0:0::/:\nwinnow:x:65532:65532::/:\n' >"$2/etc/passwd"
	rm -rf "$2"/usr/lib/{libtorch-test,*/dri,*/libLLVM*,*/libz3.*} "$2"/usr/share/{doc,man,locale,proj} "${2:?}"/dev/* "$2"/etc/{fstab,hostname,resolv.conf}
	python3 -m compileall -qq -j0 -s "$2" -p / --invalidation-mode unchecked-hash "$2"/usr/lib/python3.* "$2"/usr/lib/python3/dist-packages/{numpy,torch}
	;;
esac
