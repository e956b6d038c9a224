// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * bench_xdp.bpf.c - the XDP program and what it is measured against, each fed frame after frame
 *
 * One packet is run again and again. Before each run prepare() makes it the next worker's PUSH,
 * and opens the slot anew for the first worker of a frame, so that each run does real work.
 */

#include "ebpf/winnow.bpf.c"

#include "tests/bench/bench_xdp.h"

struct bench_packet bench; /* user space: wo */
__u64 turn;

/*
 * Every field that an answer changes is set again, each in its own width: a wider store, read in
 * parts, would stall the reader.
 */
static __always_inline int prepare(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	__u16 *mac = (void *)(long)ctx->data;
	struct iphdr *ip = (void *)mac + sizeof(struct ethhdr);
	struct udphdr *udp = (void *)(ip + 1);
	struct wire_header *wire = (void *)(udp + 1);
	__u32 worker = turn % BENCH_WORKERS, frame = (__u32)(turn / BENCH_WORKERS);
	__u32 place = frame % BENCH_WINDOW;
	struct fast_slot *slot = bpf_map_lookup_elem(&slots, &place);

	turn++;
	if (!slot || (void *)(wire + 1) > end)
		return 0;
#pragma unroll
	for (int i = 0; i < 3; i++) {
		mac[i] = 0x2202;
		mac[i + 3] = 0x3302;
	}
	ip->saddr = bench.from_ip;
	ip->daddr = bench.to_ip;
	udp->source = bench.from_port;
	udp->dest = bench.to_port;
	wire->kind = WIRE_PUSH;
	wire->worker = (__u16)worker;
	wire->seal = worker + 1;
	wire->frame = frame;
	wire->edge = 0;
	wire->number = 0;
	if (worker != 0)
		return 1;
	slot->frame = frame;
	slot->came = slot->touched = 0;
	slot->arrived = 0;
	slot->sent = 0;
	slot->state = FAST_OPEN;
	return 1;
}

SEC("xdp")
int bench_prepare(struct xdp_md *ctx)
{
	return prepare(ctx) ? XDP_DROP : XDP_ABORTED;
}

SEC("xdp")
int bench_winnow(struct xdp_md *ctx)
{
	return prepare(ctx) ? any_packet_take(ctx) : XDP_ABORTED;
}

/* The same for a job with seals, on a channel of its own. */
static __always_inline int prepare_sealed(struct xdp_md *ctx)
{
	__u32 key = 1;
	struct fast_channel *channel = bpf_map_lookup_elem(&channels, &key);
	struct wire_header *wire;
	__u64 seal;

	if (!channel || !prepare(ctx))
		return 0;
	wire = (void *)(long)ctx->data + HEADERS_BYTES(0) - WIRE_HEADER_BYTES;
	if ((void *)(wire + 1) > (void *)(long)ctx->data_end)
		return 0;
	seal = seal_packet(ctx, channel, wire->worker & (BENCH_WORKERS - 1), 0, 0);
	wire = (void *)(long)ctx->data + HEADERS_BYTES(0) - WIRE_HEADER_BYTES;
	if ((void *)(wire + 1) > (void *)(long)ctx->data_end)
		return 0;
	wire->seal = seal;
	return 1;
}

SEC("xdp")
int bench_prepare_sealed(struct xdp_md *ctx)
{
	return prepare_sealed(ctx) ? XDP_DROP : XDP_ABORTED;
}

SEC("xdp")
int bench_sealed(struct xdp_md *ctx)
{
	return prepare_sealed(ctx) ? any_packet_take(ctx) : XDP_ABORTED;
}

/* The least that an answer takes: addresses and ports turned round. */
SEC("xdp")
int bench_echo(struct xdp_md *ctx)
{
	void *end, *data;
	__u16 *mac, swap;
	struct iphdr *ip;
	struct udphdr *udp;
	__u32 address;

	if (!prepare(ctx))
		return XDP_ABORTED;
	end = (void *)(long)ctx->data_end;
	data = (void *)(long)ctx->data;
	mac = data;
	ip = data + sizeof(struct ethhdr);
	udp = (void *)(ip + 1);
	if ((void *)(udp + 1) > end)
		return XDP_PASS;
#pragma unroll
	for (int i = 0; i < 3; i++) {
		swap = mac[i];
		mac[i] = mac[i + 3];
		mac[i + 3] = swap;
	}
	address = ip->saddr;
	ip->saddr = ip->daddr;
	ip->daddr = address;
	swap = udp->source;
	udp->source = udp->dest;
	udp->dest = swap;
	return XDP_TX;
}

/* The data of the packet added to a value of a map, and nothing else looked at. */
SEC("xdp")
int bench_add(struct xdp_md *ctx)
{
	__u32 place = (__u32)(turn / BENCH_WORKERS) % BENCH_WINDOW;
	struct fast_slot *slot;

	if (!prepare(ctx))
		return XDP_ABORTED;
	slot = bpf_map_lookup_elem(&slots, &place);
	if (slot)
		fold_add(ctx, slot, HEADERS_BYTES(0), 0, bench.data_bytes);
	return XDP_DROP;
}
