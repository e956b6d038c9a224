// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * nic.bpf.c - PUSHes of four workers, one by one, as frames that a NIC's driver has received
 *
 * The kernel runs it on one fresh page after another (live frames) and sends by a device
 * what it redirects. Each byte is written anew each time, as DMA would.
 */

#include <stddef.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include <bpf/bpf_helpers.h>

#include "ebpf/wire.h"
#include "tests/bench/nic.h"

struct nic_stream stream;

/* The sum goes up by what is added to the packet; the checksum is its complement. */
static __always_inline __u16 checksum(__u32 worker, __u32 frame, __u32 ack)
{
	__u64 sum = stream.check[worker];

	sum += (frame & 0xffff) + (frame >> 16) + (ack & 0xffff) + (ack >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff ? 0xffff : (__u16)~sum;
}

static __always_inline int may_go(__u64 turn)
{
	return turn < *(volatile __u64 *)&stream.turns_max;
}

/*
 * Nothing may be sent now. What has been made is handed over when the batch is full; after that there
 * is time to lose, and a page that is dropped would take a lock that the receiver wants.
 */
static __always_inline int wait(__u64 turn)
{
	if (stream.idle++ >= NIC_BATCH)
		for (int i = 0; i < 2000 && !may_go(turn); i++)
			;
	return XDP_DROP;
}

SEC("xdp")
int nic(struct xdp_md *ctx)
{
	struct {
		__u8 bytes[NIC_HEAD_BYTES];
		__u8 data[NIC_DATA_BYTES];
	} *packet = (void *)(long)ctx->data;
	struct udphdr *udp = (void *)packet + sizeof(struct ethhdr) + sizeof(struct iphdr);
	struct wire_header *wire = (void *)(udp + 1);
	__u64 turn = stream.turn;
	__u32 worker = turn % NIC_WORKERS, frame = (__u32)(turn / NIC_WORKERS) - worker * NIC_SKEW;
	__u32 ack = *(volatile __u32 *)&stream.ack;

	if ((void *)(packet + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	if (!may_go(turn))
		return wait(turn);
	stream.idle = 0;
	stream.turn = turn + 1;
	if (frame >= stream.total) /* this worker has not begun, or has ended */
		return XDP_DROP;
	__builtin_memcpy(packet->bytes, stream.heads[worker], NIC_HEAD_BYTES);
#pragma unroll
	for (int i = 0; i < NIC_DATA_BYTES / 8; i++)
		((__u64 *)packet->data)[i] = ((__u64 *)stream.data)[i];
	wire->frame = stream.first + frame;
	wire->edge = ack;
	if (stream.checked)
		udp->check = checksum(worker, wire->frame, ack);
	return (int)bpf_redirect(stream.out, 0);
}

char program_license[] SEC("license") = "Dual BSD/GPL";
