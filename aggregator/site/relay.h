/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * relay.h - between a site's channel and its parent's: one worker to the parent, the aggregator to
 * the site's workers
 *
 * A relay joins a channel (channel.h, "the channel of a site") with a worker's stream to the parent
 * (stream.h). The stream announces the union of the site's workers, pushes their sums, and takes the
 * parent's plans and RESULTs, which the channel passes on. Both count the same frames (PROTOCOL.md
 * 13). A RESULT is acknowledged upwards once all workers of the site have it, so the parent keeps
 * nothing for them, and what they miss is repaired here.
 *
 * Pure: packets and the time go in, packets come out. One thread at a time, the channel's; nothing
 * blocks.
 */
#ifndef AGGREGATOR_SITE_RELAY_H
#define AGGREGATOR_SITE_RELAY_H

#include "aggregator/channel/channel.h"
#include "client/worker/link.h"
#include "client/worker/stream.h"

struct relay;

/*
 * relay_open - for the channel with this id, in the name of the worker that has the link, which
 * runs. The channel has the parent's payload, window and first frame, and not more op_slots and
 * segments_ahead; it outlives the relay. The link need not. Returns 0 or -ENOMEM.
 */
int relay_open(const struct link *link, uint16_t id, struct channel *channel, struct relay **out);
void relay_close(struct relay *relay);

/*
 * relay_channel - the parent's number of the channel: the thread, by 2.3, has the same place in both
 * lists, since there are as many threads here as at the parent.
 */
uint16_t relay_channel(const struct relay *relay);

/* A datagram of the parent, from which packet_parse() has made `packet`, whose channel is this one. */
void relay_receive(struct relay *relay, struct packet *packet, const void *datagram, uint32_t bytes,
                   uint64_t now_us);

/*
 * Passes on what has come from either side. Call it after each of either, before pulling from
 * either.
 */
void relay_work(struct relay *relay, uint64_t now_us);

/* The next packet to the parent, sealed; false: there is none now. */
bool relay_pull(struct relay *relay, uint64_t now_us, struct packet_out *out);

/* When relay_pull() may have something again if nothing comes; UINT64_MAX: never. */
uint64_t relay_deadline(const struct relay *relay);

/* NULL, or why the parent refuses an operation: the job ends. */
const struct wire_mismatch *relay_refused(const struct relay *relay);

const struct stream *relay_stream(const struct relay *relay);

/* Of relays of one worker's name, what they know of the way to the parent. */
struct relay_view {
	uint64_t waits_us; /* Since when something has waited for the parent, or UINT64_MAX. */
	struct control_seen seen;
};

/* Adds what this one knows. */
void relay_look(const struct relay *relay, struct relay_view *sum);

#endif /* AGGREGATOR_SITE_RELAY_H */
