/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * predict.h - what an operation will put on the wire, counted with the protocol's own geometry
 *
 * It counts every ANNOUNCE, PLAN, PUSH and RESULT (docs/PROTOCOL.md sections 4 to 8) from the
 * workers' bitmaps, to the byte. Only acknowledgements and credits, which depend on time, are
 * estimated. It does not foresee packets that are lost and sent again. Pure.
 */
#ifndef CLIENT_CLI_PREDICT_H
#define CLIENT_CLI_PREDICT_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/dtype.h"

struct predict_net {
	uint32_t world, aggregators, channels; /* channels: of all aggregators */
	uint32_t payload, window;
	bool multicast;
	double rate, aggregator_rate; /* bytes a second, each way */
};

struct predict_op {
	uint64_t count, tag;
	enum dtype dtype;
	uint8_t form;                /* enum wire_form */
	uint32_t fine;               /* elements that a bit stands for */
	const uint64_t *const *bits; /* [world] bitmaps */
};

/* What goes in one direction. */
struct predict_flow {
	uint64_t packets;
	uint64_t head_bytes; /* all headers: Ethernet's to ours */
	uint64_t map_bytes;  /* bitmaps */
	uint64_t data_bytes; /* blocks, zeros in them included */
};

/* Sums over operations, for one block size. */
struct predict {
	uint32_t block;
	uint64_t blocks, own, united;       /* own: of all workers together */
	struct predict_flow sent, received; /* by all workers together; by each of them */
	double time_s;                      /* at least, one operation after the other */
};

/* predict_add - another operation. p->block is a multiple of op->fine. False: sizes that no job may have. */
bool predict_add(struct predict *p, const struct predict_net *net, const struct predict_op *op);

uint64_t predict_bytes(const struct predict_flow *flow);

/* A sum with each of its numbers divided by `among` and rounded. */
struct predict_flow predict_mean(const struct predict_flow *sum, double among);

/* bits[..] of blocks of `ratio` times `fine`: does any bit of each block's `ratio` bits stand? */
void predict_coarsen(const uint64_t *fine, uint64_t fine_bits, uint64_t ratio, uint64_t *bits);

#endif /* CLIENT_CLI_PREDICT_H */
