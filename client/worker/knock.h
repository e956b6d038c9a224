/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * knock.h - a worker's KNOCKs: finds which datagrams pass, and whether multicast arrives
 *
 * Two machines without I/O, which are parts of a link: `knock` while joining, `path` later.
 */
#ifndef CLIENT_KNOCK_H
#define CLIENT_KNOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/control/message.h"

/*
 * A joining worker knocks on each channel, from the largest size that may work downwards, until all channels have
 * answered one size. It knocks at once if the aggregator wants proof that it hears the answers. Then it knocks on one
 * channel for a while, because each KNOCK makes the aggregator send a PROBE. PROTOCOL.md section 5.3.
 */
struct knock {
	uint32_t channel_count;
	uint32_t largest, size; /* The UDP payload to begin with, and the one being tried. */
	bool wants_probe;       /* A PROBE is of use and has not come. */
	bool done;       /* `size` passes, and a PROBE has come or is not expected any more. */
	uint32_t rounds; /* Rounds of this size. */
	uint32_t passes; /* Passes through all sizes. */
	uint32_t turn;   /* The channel to knock on next in this round. */
	uint64_t due_us;
	uint64_t answered; /* A bit for each channel that has answered this size. */
	uint64_t asked;    /* A bit for each channel that is due at once. */
	uint64_t hurried;  /* A bit for each channel that has been due at once in this round. */
	uint64_t probe_until_us; /* How long to wait for a PROBE; NEVER until all have answered. */
};

/* The next smaller size to try after `bytes`, or 0. */
uint32_t knock_smaller(uint32_t bytes);

/* Begins with datagrams of `largest` bytes. `wants_probe` tells that multicast is of use. */
void knock_begin(struct knock *knock, uint32_t channel_count, uint32_t largest, bool wants_probe,
                 uint64_t now_us);

/* Takes the channel and size of the next KNOCK. Returns false if none is due. */
bool knock_pull(struct knock *knock, uint64_t now_us, uint32_t *channel, uint32_t *bytes);

uint64_t knock_deadline(const struct knock *knock);

/* The aggregator wants another KNOCK on this channel before it notes our address. */
void knock_asked(struct knock *knock, uint32_t channel);

/* Tell that a KNOCK of `bytes` bytes was answered, and that a PROBE has come or is no longer of use. */
void knock_answer(struct knock *knock, uint32_t channel, uint32_t bytes, uint64_t now_us);
void knock_probed(struct knock *knock);

/*
 * While operations wait without progress, a worker cannot know whether another worker is late or its own datagrams are
 * lost. So it knocks again on each channel, with datagrams as large as the job's. An answer shows that the path works,
 * and that others are late. If no answer comes for long enough, the path is dead or carries only smaller datagrams,
 * which are also tried. PROTOCOL.md section 11.5.
 */
struct path {
	uint32_t channel_count;
	uint32_t payload;     /* The job's payload. */
	uint64_t patience_us; /* A path without answers for this long is dead. */
	uint64_t waits_us;    /* Since when operations have waited without news, or NEVER. */
	uint64_t fine_us;     /* When all channels last answered. */

	/* A check that is under way. */
	bool checking;
	uint64_t began_us;
	uint32_t round;
	uint32_t turn; /* The next KNOCK of this round: one per channel, then smaller ones. */
	uint64_t round_due_us;
	uint64_t answered;                      /* A bit for each channel that has answered. */
	uint32_t passing[CONTROL_CHANNELS_MAX]; /* The largest smaller size that was answered. */
};

struct path_verdict {
	uint32_t channel; /* Datagrams of the job's size do not pass on this channel any more. */
	uint32_t passing; /* The largest size that still passes, or 0. */
	uint32_t sent;    /* Datagrams of the job's size that had no answer. */
};

void path_init(struct path *path, uint32_t channel_count, uint32_t payload, uint64_t patience_us);

/* Tells since when operations have waited without news, or NEVER. */
void path_waits(struct path *path, uint64_t since_us, uint64_t now_us);

/* Takes the channel and size of the next KNOCK. Returns false if none is due. */
bool path_pull(struct path *path, uint64_t now_us, uint32_t *channel, uint32_t *bytes);
uint64_t path_deadline(const struct path *path);

/* Tells that a KNOCK of `bytes` bytes was answered. */
void path_answer(struct path *path, uint32_t channel, uint32_t bytes, uint64_t now_us);

/* Returns true and fills *out after a check has ended without an answer on some channel. */
bool path_failed(const struct path *path, uint64_t now_us, struct path_verdict *out);

#endif /* CLIENT_KNOCK_H */
