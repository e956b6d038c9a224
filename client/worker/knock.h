/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * knock.h - a worker's KNOCKs: which datagrams pass, does multicast arrive, and do they still pass later?
 *
 * Two machines without I/O, parts of a link.
 */
#ifndef CLIENT_KNOCK_H
#define CLIENT_KNOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/control/message.h"

/*
 * While it joins it knocks on each channel, from the largest size that may work downwards, until all have answered
 * one size. It knocks at once where it is asked to show that it hears the answers. Then it knocks on one
 * channel for a while, because each KNOCK draws a PROBE. PROTOCOL.md section 5.3.
 */
struct knock {
	uint32_t channel_count;
	uint32_t largest, size; /* UDP payload: to begin with, and being tried */
	bool wants_probe;
	bool done;       /* datagrams of `size` pass; a PROBE has come, or there was time for one */
	uint32_t rounds; /* rounds of this size */
	uint32_t passes; /* passes through all sizes */
	uint32_t turn;   /* channel to knock on next in this round */
	uint64_t due_us;
	uint64_t answered;       /* a bit a channel: datagrams of this size pass */
	uint64_t asked, hurried; /* a bit a channel: it is due at once; it was, in this round */
	uint64_t probe_until_us; /* NEVER before all channels have answered */
};

/* The next smaller size to try after `bytes`; 0: there is none. */
uint32_t knock_smaller(uint32_t bytes);

/* knock_begin - with datagrams of `largest` bytes; `wants_probe`: multicast is of use. */
void knock_begin(struct knock *knock, uint32_t channel_count, uint32_t largest, bool wants_probe,
                 uint64_t now_us);

/* knock_pull - the next KNOCK: on which channel, how large. False: none is due. */
bool knock_pull(struct knock *knock, uint64_t now_us, uint32_t *channel, uint32_t *bytes);

uint64_t knock_deadline(const struct knock *knock);

/* The aggregator wants another KNOCK on this channel before it notes our address. */
void knock_asked(struct knock *knock, uint32_t channel);

/* A KNOCK of `bytes` bytes was answered; a PROBE has arrived, or is no longer of use. */
void knock_answer(struct knock *knock, uint32_t channel, uint32_t bytes, uint64_t now_us);
void knock_probed(struct knock *knock);

/*
 * While operations wait without progress, a worker cannot know whether another worker is late or
 * its own datagrams are lost. So it knocks again on each channel, with datagrams as large as the
 * job's. Where an answer arrives the path is fine, and the wait is for somebody else. Where none
 * arrives for long enough the path is dead, or carries only smaller datagrams, which are tried as
 * well. PROTOCOL.md section 11.5.
 */
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

#endif /* CLIENT_KNOCK_H */
