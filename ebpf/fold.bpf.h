/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * fold.bpf.h - loops of winnow.bpf.c that add and copy between a packet and a slot
 *
 * Each loop is a global function, so that the verifier checks it once, and not on every path to it.
 * packet_at counts from the packet's first byte, headers included. slot_at and bytes are multiples
 * of 4. The caller has checked that they lie within packet and slot, so the checks here never fail;
 * the verifier demands them, one for every 64 bytes. Packets are read at any alignment, which x86
 * allows.
 */
#ifndef EBPF_FOLD_BPF_H
#define EBPF_FOLD_BPF_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_helpers.h>

#include "ebpf/fastpath.h"

/* The offset of the UDP header, and of a datagram's data. `six` selects IPv6. */
#define UDP_AT(six)                                                                                \
	(sizeof(struct ethhdr) + ((six) ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)))
#define HEADERS_BYTES(six) (UDP_AT(six) + sizeof(struct udphdr) + WIRE_HEADER_BYTES)
#define FOLD_CHUNK 64

/* The verifier must see that the value checked is the value used, and not a compiler's copy. */
#define keep_register(variable) asm volatile("" : "+r"(variable))

enum fold_kind {
	FOLD_COPY, /* the slot becomes the packet's data */
	FOLD_ADD,  /* the packet's data is added to the slot */
	FOLD_EMIT, /* the packet's data becomes the slot's, summed for the checksum */
};

/* Handles one i32, or any four bytes where nothing is added. Returns its part of the checksum. */
static __always_inline __u64 fold_word(__u32 *packet, __u32 *slot, enum fold_kind kind)
{
	__u32 word = kind == FOLD_EMIT ? *slot : *packet;

	if (kind == FOLD_ADD)
		word += *slot;
	*(kind == FOLD_EMIT ? packet : slot) = word;
	return kind == FOLD_EMIT ? word : 0;
}

/* Handles two words where nothing is added: unaligned short stores to a packet are slow. */
static __always_inline __u64 fold_pair(__u64 *packet, __u64 *slot, enum fold_kind kind)
{
	__u64 pair = kind == FOLD_EMIT ? *slot : *packet;

	*(kind == FOLD_EMIT ? packet : slot) = pair;
	return kind == FOLD_EMIT ? (pair & 0xffffffff) + (pair >> 32) : 0;
}

static __always_inline __u64 fold_chunk(void *packet, void *slot, enum fold_kind kind)
{
	__u64 sum = 0;

#pragma unroll
	for (int i = 0; i < FOLD_CHUNK / 4; i++)
		if (kind == FOLD_ADD)
			fold_word((__u32 *)packet + i, (__u32 *)slot + i, kind);
		else if (i % 2 == 0)
			sum += fold_pair(packet + 4 * i, slot + 4 * i, kind);
	return sum;
}

static __always_inline __u64 sums_fold(struct xdp_md *ctx, struct fast_slot *slot, __u32 packet_at,
                                       __u32 slot_at, __u32 bytes, enum fold_kind kind)
{
	void *end = (void *)(long)ctx->data_end;
	void *packet = (void *)(long)ctx->data;
	__u64 sum = 0;

	if (!slot || bytes > FAST_DATA_BYTES || packet_at > FAST_DATA_BYTES + HEADERS_BYTES(1) ||
	    slot_at > FAST_DATA_BYTES)
		return 0;
	packet += packet_at;
	for (; bytes >= FOLD_CHUNK; bytes -= FOLD_CHUNK) {
		keep_register(packet);
		keep_register(slot_at);
		if (packet + FOLD_CHUNK > end || slot_at > FAST_DATA_BYTES - FOLD_CHUNK)
			return sum;
		sum += fold_chunk(packet, slot->data + slot_at, kind);
		packet += FOLD_CHUNK;
		slot_at += FOLD_CHUNK;
	}
	for (; bytes >= 4; bytes -= 4) {
		keep_register(packet);
		keep_register(slot_at);
		if (packet + 4 > end || slot_at > FAST_DATA_BYTES - 4)
			return sum;
		sum += fold_word(packet, (__u32 *)(slot->data + slot_at), kind);
		packet += 4;
		slot_at += 4;
	}
	return sum;
}

__noinline __u64 fold_copy(struct xdp_md *ctx, struct fast_slot *slot, __u32 packet_at,
                           __u32 slot_at, __u32 bytes)
{
	return sums_fold(ctx, slot, packet_at, slot_at, bytes, FOLD_COPY);
}

__noinline __u64 fold_add(struct xdp_md *ctx, struct fast_slot *slot, __u32 packet_at,
                          __u32 slot_at, __u32 bytes)
{
	return sums_fold(ctx, slot, packet_at, slot_at, bytes, FOLD_ADD);
}

__noinline __u64 fold_emit(struct xdp_md *ctx, struct fast_slot *slot, __u32 packet_at, __u32 bytes)
{
	return sums_fold(ctx, slot, packet_at, 0, bytes, FOLD_EMIT);
}

#endif /* EBPF_FOLD_BPF_H */
