/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * knocks.h - from which address a channel takes a worker's datagrams, and whether they arrive
 *
 * A worker's address is where its latest KNOCK came from; KNOCKs are counted, so one that somebody has
 * recorded and sends again moves nothing. Once the job has started, a KNOCK from elsewhere must carry
 * the number that the worker was given over its control connection (PROTOCOL.md section 5.3). Pure: the
 * data plane, and the simulation, have one struct knocker for each worker of each channel.
 */
#ifndef AGGREGATOR_KNOCKS_H
#define AGGREGATOR_KNOCKS_H

#include "aggregator/jobs/jobs.h"

/* All zero: nothing has come yet, and the address may not change. */
struct knocker {
	uint64_t number; /* what a KNOCK from elsewhere must carry, once; 0: there is none */
	uint32_t count;  /* of the latest */
	uint64_t any_us,
		whole_us; /* when the latest came, and that as large as the job's datagrams */
};

/* knock_moves - may the worker's address become that of this KNOCK, which came from elsewhere? */
static inline bool knock_moves(const struct knocker *knocker, const struct packet *packet,
                               bool started)
{
	if (!started)
		return knocker->any_us == 0 || frame_before(knocker->count, packet->frame);
	return knocker->number != 0 && packet->number == knocker->number;
}

/*
 * A KNOCK is answered; `whole`: it is as large as the job's datagrams. A number works once, and a KNOCK
 * without it does not use it up. One whose count is not later may be somebody's record: it does not show
 * that the worker is heard.
 */
static inline void knock_note(struct knocker *knocker, const struct packet *packet, bool whole,
                              uint64_t now_us)
{
	if (packet->number == knocker->number)
		knocker->number = 0;
	if (knocker->any_us != 0 && !frame_before(knocker->count, packet->frame))
		return;
	knocker->count = packet->frame;
	knocker->any_us = now_us;
	if (whole)
		knocker->whole_us = now_us;
}

/* How long ago the last ones came. */
static inline void knock_ages(const struct knocker *knocker, uint64_t now_us,
                              struct jobs_heard *out)
{
	out->any_us = knocker->any_us != 0 ? now_us - knocker->any_us : UINT64_MAX;
	out->whole_us = knocker->whole_us != 0 ? now_us - knocker->whole_us : UINT64_MAX;
}

#endif /* AGGREGATOR_KNOCKS_H */
