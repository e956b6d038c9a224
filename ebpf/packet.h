/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * packet.h - turns the bytes of wire.h into plain structs and back
 *
 * Only this code in user space knows offsets. The parse functions check length and form once, and
 * their results are safe to use, so no other code does pointer arithmetic on a packet's head. No
 * function keeps state, blocks or allocates; any thread may call them.
 */
#ifndef EBPF_PACKET_H
#define EBPF_PACKET_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include "ebpf/wire.h"

#define PACKET_HEAD_MAX 208  /* the header and the largest part that is built in place */
#define PACKET_POINTS_MAX 66 /* pieces that point to other memory */

/* Serial numbers (RFC 1982). Tells whether a is before b; they are less than 2^31 apart. */
static inline bool frame_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

/* Tells whether a <= b <= c. */
static inline bool frames_in_order(uint32_t a, uint32_t b, uint32_t c)
{
	return !frame_before(b, a) && !frame_before(c, b);
}

static inline bool sequence_before(uint16_t a, uint16_t b)
{
	return (int16_t)(uint16_t)(a - b) < 0;
}

/* Tells whether a segment of f32 can have this exponent. Converters rely on it. */
static inline bool exponent_possible(int16_t exponent)
{
	return exponent == WIRE_EXPONENT_NONE ||
	       (exponent >= WIRE_EXPONENT_MIN && exponent <= WIRE_EXPONENT_MAX);
}

/* A received datagram, for a machine that parses it itself. */
struct arrival {
	const void *data;
	uint32_t bytes;
	uint64_t came_us; /* when the system received it; 0: unknown */
	bool marked;      /* ECN: a queue on its way was long */
};

/* A received packet. It points into the receiver's buffer. */
struct packet {
	uint8_t kind; /* enum wire_kind */
	uint16_t channel;
	uint16_t worker;
	uint64_t token; /* the token; seal_check() sets it for sealed packets */
	uint32_t frame;
	uint32_t edge; /* ack or base */
	union {
		uint64_t number; /* only KNOCK and KNOCKED have it */
		struct {
			uint16_t window;
			uint16_t sequence;
			union {
				uint32_t planned, pushed;
			};
		};
	};
	const uint8_t *body; /* the bytes after the header, at any alignment */
	uint32_t body_bytes;
	uint64_t came_us; /* as in struct arrival; packet_parse() says 0 */
	bool marked;      /* as in struct arrival; packet_parse() says false */
};

/* The set of blocks after the fields of an announcement or plan, and, if eager, the blocks. */
struct packet_set {
	const uint8_t *data; /* as bits_read() reads it; empty for all or no blocks */
	uint32_t bytes;
	const uint8_t *blocks; /* only if eager; in a plan their sums */
	uint32_t blocks_bytes;
};

struct announce {
	uint64_t tag;
	uint64_t count;
	uint64_t layout;
	uint32_t segment, segment_count;
	uint32_t generation;
	uint16_t op_slot;
	uint16_t block_count; /* in the segment */
	uint32_t block_elems; /* in a block: 1 .. WIRE_BLOCK_ELEMS_MAX */
	int16_t exponent;
	uint8_t dtype;
	uint8_t reduction;
	uint8_t form;
	uint8_t flags;
	struct packet_set set;
};

struct plan {
	uint64_t tag;
	uint32_t segment;
	uint32_t frame_count;
	uint16_t status; /* enum wire_plan_status */
	int16_t exponent;
	uint8_t flags;
	struct wire_mismatch mismatch; /* only if status is WIRE_MISMATCH */
	struct packet_set set;
};

struct status {
	uint32_t stamp;
	uint32_t held, marked;
	bool asks;
	uint32_t first; /* the frame of the first bit */
	uint32_t word_count;
	uint64_t words[WIRE_STATUS_WORDS_MAX]; /* the frames that its sender lacks */
};

/* Adds a frame after those listed. Returns false if there is no room for it. */
static inline bool status_list(struct status *status, uint32_t frame)
{
	uint32_t bit = status->word_count > 0 ? frame - status->first : 0;

	if (bit >= WIRE_STATUS_WORDS_MAX * 64)
		return false;
	status->first = frame - bit;
	status->words[bit / 64] |= UINT64_C(1) << (bit % 64);
	status->word_count = bit / 64 + 1;
	return true;
}

/*
 * A packet to send, as a list of pieces: the head, which is built here, and memory that the other
 * pieces point to. That memory stays valid until the machine that made the packet is next given
 * one. `scratch` is the caller's memory of [payload bytes], set once, into which a machine may
 * convert.
 */
struct packet_out {
	uint16_t dest;     /* a rank, or WIRE_EVERYONE */
	uint16_t receiver; /* rank that gets the data of a packet to everyone; or WIRE_EVERYONE */
	uint16_t piece_count;
	uint32_t bytes; /* of all pieces */
	void *scratch;
	struct iovec pieces[1 + PACKET_POINTS_MAX]; /* the head is pieces[0] */
	uint8_t head[PACKET_HEAD_MAX];
};

/*
 * packet_parse - parses the header of `bytes` bytes at `data`. `to_worker` is the expected
 * direction. Returns WIRE_DROP_NONE, or the reason to drop the packet.
 */
enum wire_drop packet_parse(const void *data, uint32_t bytes, bool to_worker, struct packet *out);

/* Parse the bodies. Each returns WIRE_DROP_NONE, _SHORT or _LENGTH. */
enum wire_drop announce_parse(const struct packet *packet, struct announce *out);
enum wire_drop plan_parse(const struct packet *packet, struct plan *out);

enum wire_drop status_parse(const struct packet *packet, struct status *out);

/* Begins `out` with a header, adding magic and version; `seal` is the token, and dest not set. */
void packet_begin(struct packet_out *out, const struct wire_header *head);

/*
 * Append to the head. Of a set they write only its length, and only if the operation is eager; the
 * caller then points at the set, and at the blocks.
 */
void packet_put_announce(struct packet_out *out, const struct announce *announce);
void packet_put_plan(struct packet_out *out, const struct plan *plan);
void packet_put_status(struct packet_out *out, const struct status *status);

static inline uint32_t packet_body_bytes(const struct packet_out *out)
{
	return out->bytes - (uint32_t)out->pieces[0].iov_len;
}

/* Appends memory to point at, and merges adjoining pieces. `bytes` may be 0. */
void packet_point(struct packet_out *out, const void *data, uint32_t bytes);

/* drop_name - the label of a counter: "short", "bad_magic" and so on. */
const char *drop_name(enum wire_drop drop);

/* packet_form_name - "native", "fixed32" and so on; "?" for any other number. */
const char *packet_form_name(uint64_t form);

#endif /* EBPF_PACKET_H */
