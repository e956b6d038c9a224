/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * seal.bpf.h - computes the seal of the current packet (PROTOCOL.md, section 2.4)
 *
 * seal.c does the same in user space. As in fold.bpf.h, the function with the loop is global, and
 * it checks bounds because the verifier demands it.
 */
#ifndef EBPF_SEAL_BPF_H
#define EBPF_SEAL_BPF_H

#include "ebpf/fold.bpf.h"

#define SEAL_STEP 64 /* bytes at a time; divides a chunk */

/* The results of NH's two passes. */
struct nh_sums {
	__u64 first, second;
};

/* One pair for both passes. In another order the compiler needs more registers than BPF has. */
static __always_inline void nh_step(const void *packet, const __u64 *key, struct nh_sums *sums)
{
	const volatile __u32 *words = packet, *k = (const volatile __u32 *)key;
	const volatile __u32 *other = k + SEAL_SHIFT / 4;
	__u32 low = words[0], high = words[1];

	sums->first += (__u64)(low + k[0]) * (high + k[1]);
	sums->second += (__u64)(low + other[0]) * (high + other[1]);
	keep_register(sums->first);
	keep_register(sums->second);
}

/*
 * seal_data - feeds NH's two numbers for `bytes` of packet data to SipHash. `bytes` is a multiple
 * of 4 and at most a chunk. Returns 0 where the packet is shorter.
 */
static __always_inline int seal_data(struct xdp_md *ctx, const struct fast_channel *channel,
                                     struct sip *sip, __u32 bytes, int six)
{
	void *end = (void *)(long)ctx->data_end;
	void *packet = (void *)(long)ctx->data + HEADERS_BYTES(six);
	const __u64 *key = channel->stretch.pairs;
	struct nh_sums sums = {0};
	__u32 pair = 0;

	for (; bytes >= SEAL_STEP; bytes -= SEAL_STEP) {
		keep_register(packet);
		keep_register(pair);
		if (packet + SEAL_STEP > end || pair > (SEAL_CHUNK - SEAL_STEP) / 8)
			return 0;
#pragma unroll
		for (int i = 0; i < SEAL_STEP / 8; i++)
			nh_step(packet + 8 * i, key + pair + i, &sums);
		packet += SEAL_STEP;
		pair += SEAL_STEP / 8;
	}
	for (; bytes >= 8; bytes -= 8) {
		keep_register(packet);
		keep_register(pair);
		if (packet + 8 > end || pair > SEAL_CHUNK / 8 - 1)
			return 0;
		nh_step(packet, key + pair, &sums);
		packet += 8;
		pair++;
	}
	if (bytes > 0) {
		keep_register(packet);
		keep_register(pair);
		if (packet + 4 > end || pair > SEAL_CHUNK / 8 - 1)
			return 0;
		sums.first += nh_pair(*(__u32 *)packet, key[pair]);
		sums.second += nh_pair(*(__u32 *)packet, key[pair + SEAL_SHIFT / 8]);
	}
	sip_word(sip, sums.first);
	sip_word(sip, sums.second);
	return 1;
}

/*
 * seal_packet - returns the seal of the current datagram by one of the channel's keys. `high` is
 * the upper half of `edge`. Returns 0 if the data is too long or not whole words of 4 bytes, so 0
 * is never a right seal here. A separate function for the same reason as those in fold.bpf.h.
 */
__noinline __u64 seal_packet(struct xdp_md *ctx, struct fast_channel *channel, __u32 which,
                             __u32 high, int six)
{
	void *end = (void *)(long)ctx->data_end;
	struct udphdr *udp = (void *)(long)ctx->data + UDP_AT(six);
	const __u64 *words = (void *)(udp + 1);
	__u32 bytes, hashed = 32;
	struct sip sip;

	_Static_assert(FAST_DATA_BYTES <= SEAL_CHUNK, "one chunk");
	if (!channel || which > FAST_KEY_GROUP || (void *)(words + 4) > end)
		return 0;
	bytes = bpf_ntohs(udp->len) - sizeof(*udp);
	sip_begin(&sip, &channel->keys[which]);
	sip_word(&sip, words[0]);
	sip_word(&sip, words[2]);
	sip_word(&sip, words[3]);
	sip_word(&sip, seal_length_word(bytes, high));
	bytes -= WIRE_HEADER_BYTES;
	if (bytes > FAST_DATA_BYTES || bytes % 4 != 0)
		return 0;
	if (bytes > 0) {
		if (!seal_data(ctx, channel, &sip, bytes, six))
			return 0;
		hashed += 16;
	}
	return sip_end(&sip, hashed);
}

#endif /* EBPF_SEAL_BPF_H */
