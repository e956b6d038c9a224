/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * seal.h - seals of datagrams, without which nobody can make or change one (PROTOCOL.md, 2.4)
 *
 * The machines build and read packets. The code between them and a net seals packets and checks the
 * seals of those that arrive. Any thread; no state is kept, and nothing is allocated.
 */
#ifndef EBPF_SEAL_H
#define EBPF_SEAL_H

#include "ebpf/packet.h"
#include "ebpf/seal_words.h"

/* All keys of a job, on its aggregator. */
struct seals {
	struct seal_stretch stretch;
	struct seal_key group;     /* for packets of the aggregator */
	struct seal_key workers[]; /* [world], for packets of each worker */
};

static inline size_t seals_bytes(uint32_t world)
{
	return sizeof(struct seals) + world * sizeof(struct seal_key);
}

/*
 * seal_write - writes the seal into the head of a complete packet. `edge` is the 64-bit number that
 * the packet's own was cut from, or any less than 2^31 away.
 */
void seal_write(struct packet_out *packet, const struct seal_stretch *stretch,
                const struct seal_key *key, uint64_t edge);

/* seal_right - checks the seal against this key. `bytes` is at least a header's. */
bool seal_right(const void *datagram, uint32_t bytes, const struct seal_stretch *stretch,
                const struct seal_key *key, uint64_t edge);

/*
 * seal_check - gives the packet `token` if the datagram's seal is right, and another token if it is
 * not, because the machines check tokens.
 */
void seal_check(struct packet *packet, const void *datagram, uint32_t bytes, uint64_t token,
                const struct seal_stretch *stretch, const struct seal_key *key, uint64_t edge);

#endif /* EBPF_SEAL_H */
