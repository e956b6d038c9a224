/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * knock.h - a worker's KNOCKs while it joins: which datagrams pass, and does multicast arrive?
 *
 * It knocks on each channel, from the largest size that may work downwards, until all have answered
 * one size. It knocks at once where it is asked to show that it hears the answers. Then it knocks on one
 * channel for a while, because each KNOCK draws a PROBE. PROTOCOL.md section 5.3. A machine without I/O,
 * part of its link; path.h handles later KNOCKs.
 */
#ifndef CLIENT_KNOCK_H
#define CLIENT_KNOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/control/message.h"

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

#endif /* CLIENT_KNOCK_H */
