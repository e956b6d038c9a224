/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * predict.h - predicts what an operation puts on the wire, with the protocol's own geometry
 *
 * It counts each ANNOUNCE, PLAN, PUSH and RESULT (docs/PROTOCOL.md sections 4 to 8) to the byte from
 * the workers' bitmaps. Acknowledgements and credits depend on time and are estimated. Lost packets
 * are not considered. Pure.
 */
#ifndef CLIENT_CLI_PREDICT_H
#define CLIENT_CLI_PREDICT_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/dtype.h"

struct predict_net {
	uint32_t world, aggregators, channels; /* The channels of all aggregators together. */
	uint32_t payload, window;
	bool multicast;
	double rate, aggregator_rate; /* Bytes per second in each direction. */
};

struct predict_op {
	uint64_t count, tag;
	enum dtype dtype;
	uint8_t form;                /* An enum wire_form. */
	uint32_t fine;               /* The elements that one bit stands for. */
	const uint64_t *const *bits; /* [world] bitmaps. */
};

/* The traffic in one direction. */
struct predict_flow {
	uint64_t packets;
	uint64_t head_bytes; /* All headers, from Ethernet's to ours. */
	uint64_t map_bytes;  /* Bitmaps. */
	uint64_t data_bytes; /* Blocks, with the zeros in them. */
};

/* Sums over operations, for one block size. */
struct predict {
	uint32_t block;
	uint64_t blocks, united;      /* All blocks, and those in the union. */
	uint64_t own;                 /* The non-zero blocks of all workers together. */
	struct predict_flow sent;     /* By all workers together. */
	struct predict_flow received; /* By each worker. */
	double time_s;                /* The least time, with one operation after the other. */
};

/* Adds an operation. p->block must be a multiple of op->fine. Returns false for sizes that no job may have. */
bool predict_add(struct predict *p, const struct predict_net *net, const struct predict_op *op);

uint64_t predict_bytes(const struct predict_flow *flow);

/* Divides each number of `sum` by `among` and rounds it. */
struct predict_flow predict_mean(const struct predict_flow *sum, double among);

/* Makes the bitmap of coarser blocks: a bit is set if any of the block's `ratio` bits in `fine` is set. */
void predict_coarsen(const uint64_t *fine, uint64_t fine_bits, uint64_t ratio, uint64_t *bits);

#endif /* CLIENT_CLI_PREDICT_H */
