/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * path.h - do datagrams still pass between a worker and one of its aggregators?
 *
 * While operations wait without progress, a worker cannot know whether another worker is late or
 * its own datagrams are lost. So it knocks again on each channel, with datagrams as large as the
 * job's. Where an answer arrives the path is fine, and the wait is for somebody else. Where none
 * arrives for long enough the path is dead, or carries only smaller datagrams, which are tried as
 * well. PROTOCOL.md section 11.5. A machine without I/O, part of its link.
 */
#ifndef CLIENT_PATH_H
#define CLIENT_PATH_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/control/message.h"

struct path {
	uint32_t channel_count;
	uint32_t payload;     /* the job's */
	uint64_t patience_us; /* without any answer for this long it is dead */
	uint64_t waits_us;    /* since when something is awaited without any news */
	uint64_t fine_us;     /* when all channels last answered */

	/* A check under way. */
	bool checking;
	uint64_t began_us;
	uint32_t round;
	uint32_t turn; /* KNOCKs of this round that are out: twice a channel, whole and smaller */
	uint64_t round_due_us;
	uint64_t answered;                      /* bits of channels */
	uint32_t passing[CONTROL_CHANNELS_MAX]; /* the largest smaller size that was answered */
};

struct path_verdict {
	uint32_t channel; /* datagrams of the job's size pass no more on this one */
	uint32_t passing; /* datagrams of this size still do; 0: none do */
	uint32_t sent;    /* datagrams of the job's size that had no answer */
};

void path_init(struct path *path, uint32_t channel_count, uint32_t payload, uint64_t patience_us);

/* Since when operations have waited without news; NEVER: none waits, or there is news. */
void path_waits(struct path *path, uint64_t since_us, uint64_t now_us);

/* path_pull - the next KNOCK that is due: on which channel, how large; false when there is none. */
bool path_pull(struct path *path, uint64_t now_us, uint32_t *channel, uint32_t *bytes);
uint64_t path_deadline(const struct path *path);

/* A KNOCK of `bytes` bytes has been answered. */
void path_answer(struct path *path, uint32_t channel, uint32_t bytes, uint64_t now_us);

/* path_failed - true and *out filled once a check has ended without an answer. */
bool path_failed(const struct path *path, uint64_t now_us, struct path_verdict *out);

#endif /* CLIENT_PATH_H */
