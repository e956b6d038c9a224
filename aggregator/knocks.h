/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * knocks.h - what a channel knows of a worker's KNOCKs: do its datagrams arrive?
 *
 * Pure: the data plane, and the simulation, have one for each worker of each channel.
 */
#ifndef AGGREGATOR_KNOCKS_H
#define AGGREGATOR_KNOCKS_H

#include "aggregator/jobs.h"

/* All zero: nothing has come yet. */
struct knocker {
	uint64_t any_us,
		whole_us; /* when the last KNOCK came, and the last as large as the job's datagrams */
};

/* A KNOCK has come. */
void knock_note(struct knocker *knocker, bool whole, uint64_t now_us);

/* How long ago the last ones came. */
void knock_ages(const struct knocker *knocker, uint64_t now_us, struct jobs_heard *out);

#endif /* AGGREGATOR_KNOCKS_H */
