// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * pass.bpf.c - does nothing, on purpose
 *
 * A veth hears what its peer sends with XDP_TX in native mode only while it has an XDP program
 * itself. Tests attach this one at the workers' ends.
 */

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

SEC("xdp")
int pass(struct xdp_md *ctx)
{
	(void)ctx;
	return XDP_PASS;
}

char program_license[] SEC("license") = "Dual BSD/GPL";
