#!/usr/bin/env bash
# images.sh - builds what tests of images and of the package need, once: run.sh runs it beside other tests. Run alone, they build
# what they lack. Layers that are there from an earlier run serve again.
. "$(dirname "$0")/lib.sh"
. tests/e2e/podman.sh
base_image
image winnowd winnowd
image worker winnow-worker
image worker winnow-worker:arm64 "${platform[@]}" linux/arm64
image_for_both winnowd winnowd-for-both
if [ -e "$BUILD/winnow-dpdk.so" ]; then
	image winnowd winnowd:dpdk --build-arg DATAPATH=dpdk
fi
group_image lintian
group_image service
debian_program prometheus >/dev/null
