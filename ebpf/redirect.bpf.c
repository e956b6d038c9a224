// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * redirect.bpf.c - sends Winnow's datagrams to AF_XDP sockets and everything else to the kernel
 *
 * It is for DPDK's net_af_xdp, which would otherwise also take the control connection, ARP and
 * neighbour discovery:
 *
 *   --vdev=net_af_xdp0,iface=eth0,xdp_prog=/usr/local/lib/winnow/redirect.bpf.o
 *
 * It knows our datagrams by the first bytes of the UDP payload, so one program serves all ports and
 * multicast groups. A queue without a socket lets everything pass.
 */

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "ebpf/wire.h"

#define QUEUES_MAX 64
#define IP_FRAGMENT 0x3fff /* more fragments follow, or an offset */

/* DPDK looks for a map of this name. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, QUEUES_MAX);
	__type(key, __u32);
	__type(value, __u32);
} xsks_map SEC(".maps");

/* Finds the UDP header of a whole datagram, or returns NULL. Ours have no extension headers. */
static __always_inline const __u8 *udp_of(const struct ethhdr *eth, const __u8 *end)
{
	const struct iphdr *four = (const void *)(eth + 1);
	const struct ipv6hdr *six = (const void *)(eth + 1);

	if ((const __u8 *)(four + 1) <= end && eth->h_proto == bpf_htons(ETH_P_IP) &&
	    four->protocol == IPPROTO_UDP && (four->frag_off & bpf_htons(IP_FRAGMENT)) == 0)
		return (const __u8 *)four + four->ihl * 4;
	if ((const __u8 *)(six + 1) <= end && eth->h_proto == bpf_htons(ETH_P_IPV6) &&
	    six->nexthdr == IPPROTO_UDP)
		return (const __u8 *)(six + 1);
	return 0;
}

/* Tells whether the datagram begins like ours. */
static __always_inline int is_for_winnowd(const struct xdp_md *ctx)
{
	const __u8 *data = (const __u8 *)(long)ctx->data, *end = (const __u8 *)(long)ctx->data_end;
	const __u8 *payload = udp_of((const void *)data, end);

	if (payload == 0)
		return 0;
	payload += sizeof(struct udphdr);
	return payload + 3 <= end && payload[0] == (WIRE_MAGIC & 0xff) &&
	       payload[1] == WIRE_MAGIC >> 8 && payload[2] == WIRE_VERSION;
}

SEC("xdp")
int redirect(struct xdp_md *ctx)
{
	return is_for_winnowd(ctx) ? (int)bpf_redirect_map(&xsks_map, ctx->rx_queue_index, XDP_PASS)
	                           : XDP_PASS;
}

char program_license[] SEC("license") = "Dual BSD/GPL";
