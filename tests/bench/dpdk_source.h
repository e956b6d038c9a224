/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dpdk_source.h - what dpdk_source.c (port, clocks, echo) and dpdk_job.c (a job's workers) share
 *
 * A source plays `worker_count` workers behind one port. All that changes from one of its PUSHes to the
 * next is the protocol's header: the data behind it were written into every mbuf before the start.
 */
#ifndef TESTS_BENCH_DPDK_SOURCE_H
#define TESTS_BENCH_DPDK_SOURCE_H

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "aggregator/dpdk/frame.h"
#include "ebpf/packet.h"

#define SOURCE_BURST 32
#define SOURCE_WORKERS_MAX 16
#define UDP_BYTES 42     /* of the headers before a datagram */
#define SOURCE_PORT 7000 /* UDP, of the first worker */

struct source_lane {
	uint8_t headers[UDP_BYTES]; /* of its PUSHes; the checksum is that of no data */
	uint32_t ip;
};

struct source {
	/* Options. */
	const char *peer; /* "echo", or the aggregator's address */
	uint32_t worker_count;
	uint32_t data_bytes; /* of a PUSH */
	bool integers;       /* i32, else f32 */
	bool sums;           /* UDP checksums are right, else 0: none */
	uint32_t window;     /* PUSHes that one worker has under way */
	uint32_t first_ip;

	uint16_t port;
	struct rte_mempool *pushes, *others; /* mbufs that hold the data, and empty ones */
	uint8_t mac[FRAME_MAC_BYTES], peer_mac[FRAME_MAC_BYTES];
	struct source_lane lanes[SOURCE_WORKERS_MAX];
	uint64_t data_sum;
	struct rte_mbuf *out[SOURCE_BURST]; /* the port had no room for them */
	uint32_t out_count;

	/* Counters. */
	uint64_t sent, received; /* PUSHes; RESULTs, or PUSHes that came back */
	uint64_t wrong, lost;
};

/* Headers for a worker's PUSHes from its address to another. */
void source_aim(struct source *source, uint32_t worker, uint32_t to_ip, uint16_t to_port);

/* A PUSH with this header; put into `out`, which must have room. False: no mbufs. */
bool source_push(struct source *source, uint32_t worker, const struct wire_header *head);

/* Any other frame, copied; lost when there is no room. */
void source_small(struct source *source, const void *frame, uint32_t bytes);

/* True when `out` is empty. */
bool source_flush(struct source *source);

uint64_t source_now_us(void);

/* dpdk_job.c. job_join() says on stderr why it fails. A turn returns how many frames it handled. */
struct job;
struct job *job_join(struct source *source);
uint32_t job_turn(struct job *job);
void job_leave(struct job *job);

#endif /* TESTS_BENCH_DPDK_SOURCE_H */
