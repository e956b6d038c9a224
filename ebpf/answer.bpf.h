/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * answer.bpf.h - turns the current packet, the last PUSH of a frame, into the RESULT to everyone
 *
 * The RESULT goes to the group from the address that the PUSH was sent to. Both checksums are made
 * here. The UDP checksum is never 0, because receivers merge only datagrams that have one
 * (UDP_GRO); a sum of 0 is sent as 0xffff.
 */
#ifndef EBPF_ANSWER_BPF_H
#define EBPF_ANSWER_BPF_H

#include <linux/in.h>

#include <bpf/bpf_endian.h>

#include "ebpf/order.bpf.h"
#include "ebpf/seal.bpf.h"

#define ANSWER_DF 0x4000   /* host byte order */
#define ANSWER_IHL 0x45    /* version 4, five words of header */
#define GROUP_MAC 0x5e0001 /* 01:00:5e as a little-endian number */
#define GROUP_MAC_SIX 0x3333
#define ANSWER_SIX 0x60 /* version 6, no flow label */

struct answer {
	__u32 frame;
	__u32 data_bytes; /* bytes after the header */
	__u16 sequence;
	__u64 sum; /* of the data's words */
};

/* Turns a sum of 32-bit words into the checksum of 16-bit words. */
static __always_inline __u16 checksum_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* answer_size - makes the packet as long as its answer. Returns 0 if there is no room for it. */
static __always_inline int answer_size(struct xdp_md *ctx, __u32 data_bytes, int six)
{
	int now = (int)(ctx->data_end - ctx->data);
	int want = (int)(HEADERS_BYTES(six) + data_bytes);

	return now == want || bpf_xdp_adjust_tail(ctx, want - now) == 0;
}

static __always_inline void answer_ethernet(struct ethhdr *eth, const struct fast_channel *group,
                                            int six)
{
	__u16 *to = (__u16 *)eth->h_dest;
	__u16 *from = (__u16 *)eth->h_source;
	__u32 low;

	from[0] = to[0];
	from[1] = to[1];
	from[2] = to[2];
	if (six) {
		low = (__u32)(group->group_six[1] >> 32);
		to[0] = GROUP_MAC_SIX;
		to[1] = (__u16)low;
		to[2] = (__u16)(low >> 16);
	} else {
		low = group->group_ip; /* network byte order: its first byte is the lowest */
		to[0] = GROUP_MAC & 0xffff;
		to[1] = (__u16)((GROUP_MAC >> 16) | (low & 0x7f00));
		to[2] = (__u16)(low >> 16);
	}
}

/* Returns the addresses' part of the UDP checksum. */
static __always_inline __u64 answer_ip(struct iphdr *ip, __u32 to,
                                       const struct fast_channel *channel, __u16 bytes)
{
	__u8 ttl = channel->ttl, tos = channel->tos;
	__u64 sum = ANSWER_IHL + ((__u32)tos << 8) + bpf_htons(bytes) + bpf_htons(ANSWER_DF);

	sum += (__u64)ttl + (IPPROTO_UDP << 8) + ip->daddr + to;
	*(__u8 *)ip = ANSWER_IHL;
	ip->tos = tos;
	ip->tot_len = bpf_htons(bytes);
	ip->id = 0; /* means nothing in a datagram that must not be fragmented */
	ip->frag_off = bpf_htons(ANSWER_DF);
	ip->ttl = ttl;
	ip->check = checksum_fold(sum);
	ip->saddr = ip->daddr;
	ip->daddr = to;
	return (__u64)ip->saddr + to;
}

static __always_inline __u64 answer_ip6(struct ipv6hdr *ip, const struct fast_channel *channel,
                                        __u16 bytes)
{
	const __u64 *group = channel->group_six;
	__u32 tos = channel->tos;
	__u64 *from = (__u64 *)&ip->saddr, *to = (__u64 *)&ip->daddr;
	__u64 sum = 0;

	*(__u32 *)ip = ANSWER_SIX | tos >> 4 | (tos & 15) << 12;
	ip->payload_len = bpf_htons(bytes);
	ip->hop_limit = channel->ttl;
	from[0] = to[0];
	from[1] = to[1];
	to[0] = group[0];
	to[1] = group[1];
#pragma unroll
	for (int i = 0; i < 2; i++)
		sum += (from[i] & 0xffffffff) + (from[i] >> 32) + (to[i] & 0xffffffff) +
		       (to[i] >> 32);
	return sum;
}

/*
 * Magic, version and channel stay as they are; the seal comes later. Returns the header's part of
 * the checksum.
 */
static __always_inline __u64 answer_wire(struct wire_header *wire, struct fast_channel *channel,
                                         __u32 base, const struct answer *answer)
{
	__u32 credit, planned, most = channel->window_mask + 1;
	__u64 token = channel->sealed ? 0 : channel->group_token;
	__u16 window;

	order_keep(); /* credit is written before base and read after it, so it is not older */
	credit = *(volatile const __u32 *)&channel->credit;
	window = (__u16)(credit - base < most ? credit - base : most);
	planned = *(volatile const __u32 *)&channel->planned;
	channel->told_credit = base + window;
	wire->kind = WIRE_RESULT;
	wire->worker = WIRE_EVERYONE;
	wire->seal = token;
	wire->frame = answer->frame;
	wire->edge = base;
	wire->window = window;
	wire->sequence = answer->sequence;
	wire->planned = planned;
	return (__u64)WIRE_MAGIC + WIRE_VERSION + (WIRE_RESULT << 8) + wire->channel +
	       WIRE_EVERYONE + (token & 0xffffffff) + (token >> 32) + answer->frame + base +
	       window + answer->sequence + planned;
}

/* Writes the seal, if the job has seals, and then the UDP checksum. Returns XDP_TX. */
static __always_inline int answer_finish(struct xdp_md *ctx, struct fast_channel *channel,
                                         __u32 high, __u64 sum, int six)
{
	__u64 seal = channel->sealed ? seal_packet(ctx, channel, FAST_KEY_GROUP, high, six) : 0;
	void *end = (void *)(long)ctx->data_end;
	struct udphdr *udp = (void *)(long)ctx->data + UDP_AT(six);
	struct wire_header *wire = (void *)(udp + 1);
	__u16 check;

	if ((void *)(wire + 1) > end)
		return XDP_ABORTED;
	if (channel->sealed)
		wire->seal = seal;
	check = checksum_fold(sum + (seal & 0xffffffff) + (seal >> 32));
	udp->check = check == 0 ? 0xffff : check;
	return XDP_TX;
}

/* answer_write - writes all but the data into a packet of the right size. Returns XDP_TX. */
static __always_inline int answer_write(struct xdp_md *ctx, struct fast_channel *channel,
                                        const struct answer *answer, int six)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct udphdr *udp = (void *)eth + UDP_AT(six);
	struct iphdr *ip = (void *)(eth + 1);
	struct wire_header *wire = (void *)(udp + 1);
	__u16 bytes = (__u16)(sizeof(*udp) + sizeof(*wire) + answer->data_bytes);
	__u64 edge = *(volatile __u64 *)&channel->base;
	__u32 base = (__u32)edge;
	__u64 sum;

	if ((void *)(wire + 1) > end)
		return XDP_ABORTED; /* impossible, because the packet was as long before */
	channel->told_base = base;
	answer_ethernet(eth, channel, six);
	sum = answer->sum;
	if (six)
		sum += answer_ip6((void *)ip, channel, bytes);
	else
		sum += answer_ip(ip, channel->group_ip, channel, (__u16)(sizeof(*ip) + bytes));
	udp->source = udp->dest;
	udp->dest = channel->group_port;
	udp->len = bpf_htons(bytes);
	sum += answer_wire(wire, channel, base, answer);
	sum += (__u64)bpf_htons(IPPROTO_UDP) + bpf_htons(bytes) + udp->source + udp->dest +
	       udp->len;
	__sync_fetch_and_add(&channel->stats[FAST_STAT_SENT], 1);
	__sync_fetch_and_add(&channel->stats[FAST_STAT_SENT_BYTES], bytes - sizeof(*udp));
	return answer_finish(ctx, channel, (__u32)(edge >> 32), sum, six);
}

#endif /* EBPF_ANSWER_BPF_H */
