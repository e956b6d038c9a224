// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0
/*
 * lose.bpf.c - an XDP program that loses 3 % of the UDP datagrams that come by an interface
 *
 * For the switch between hosts: iptables on a host does not see what packet sockets take.
 */

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define LOST_OF_1024 31

SEC("xdp")
int winnow_lose(struct xdp_md *context)
{
	const void *end = (const void *)(long)context->data_end;
	const struct ethhdr *ether = (const void *)(long)context->data;
	const struct iphdr *four = (const void *)(ether + 1);
	const struct ipv6hdr *six = (const void *)(ether + 1);
	int udp = 0;

	if ((const void *)(four + 1) <= end && ether->h_proto == bpf_htons(ETH_P_IP))
		udp = four->protocol == IPPROTO_UDP;
	else if ((const void *)(six + 1) <= end && ether->h_proto == bpf_htons(ETH_P_IPV6))
		udp = six->nexthdr == IPPROTO_UDP;
	if (!udp)
		return XDP_PASS;
	return bpf_get_prandom_u32() % 1024 < LOST_OF_1024 ? XDP_DROP : XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
