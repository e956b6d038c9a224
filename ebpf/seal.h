/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * seal.h - datagrams that nobody without the key can make or change
 *
 * PROTOCOL.md section 2.4. The machines build and read packets; whoever hands their packets to a net
 * seals them, and checks the seals of what comes from one. Any thread; nothing is kept or allocated.
 */
#ifndef EBPF_SEAL_H
#define EBPF_SEAL_H

#include "ebpf/packet.h"
#include "ebpf/seal_words.h"

/* All keys of a job, as its aggregator has them. */
struct seals {
	struct seal_stretch stretch;
	struct seal_key group;     /* of what the aggregator sends */
	struct seal_key workers[]; /* [world], of what they send */
};

static inline size_t seals_bytes(uint32_t world)
{
	return sizeof(struct seals) + world * sizeof(struct seal_key);
}

/*
 * seal_write - put the seal into the head of a packet that is complete. `edge` is a 64-bit number near
 * the packet's own: the one that it was cut from, or any less than 2^31 away.
 */
void seal_write(struct packet_out *packet, const struct seal_stretch *stretch,
                const struct seal_key *key, uint64_t edge);

/* seal_right - is it the seal that was made with this key? `bytes`: at least a header's. */
bool seal_right(const void *datagram, uint32_t bytes, const struct seal_stretch *stretch,
                const struct seal_key *key, uint64_t edge);

/*
 * seal_check - the packet that was read from a datagram gets `token` if its seal is right, and another
 * one if it is not: the machines look at tokens.
 */
void seal_check(struct packet *packet, const void *datagram, uint32_t bytes, uint64_t token,
                const struct seal_stretch *stretch, const struct seal_key *key, uint64_t edge);

#endif /* EBPF_SEAL_H */
