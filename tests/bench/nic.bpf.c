// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * nic.bpf.c - at a switch's ports towards workers: their datagrams reach the aggregator as a NIC's driver has them
 *
 * What is redirected goes through the aggregator's port's ndo_xdp_xmit(): so the aggregator's device is given what a
 * driver has after DMA, a page with room around the packet, and runs its program on it, or builds an sk_buff around it.
 * nic_verified takes the UDP checksum off, so that nobody spends time on it: as if hardware had looked at it.
 */

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define PORT 5555
#define DEVICE 101 /* a0, in links.sh */

static __always_inline int redirect(struct xdp_md *context, int verified)
{
	struct {
		struct ethhdr ether;
		struct iphdr ip;
		struct udphdr udp;
	} __attribute__((packed)) *packet = (void *)(long)context->data;

	if ((void *)(packet + 1) > (void *)(long)context->data_end ||
	    packet->ether.h_proto != bpf_htons(ETH_P_IP) || packet->ip.protocol != IPPROTO_UDP ||
	    packet->udp.dest != bpf_htons(PORT))
		return XDP_PASS;
	if (verified)
		packet->udp.check = 0;
	return (int)bpf_redirect(DEVICE, 0);
}

SEC("xdp")
int nic(struct xdp_md *context)
{
	return redirect(context, 0);
}

SEC("xdp")
int nic_verified(struct xdp_md *context)
{
	return redirect(context, 1);
}

char program_license[] SEC("license") = "Dual BSD/GPL";
