/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * packet.h - bytes of wire.h to plain structs and back
 *
 * The only code in user space that knows offsets. parse functions check length
 * and form once; what they return is safe to use, and nothing behind them does
 * pointer arithmetic on a packet's head again. Nothing here keeps state, blocks
 * or allocates; any thread may call it.
 */
#ifndef EBPF_PACKET_H
#define EBPF_PACKET_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include "ebpf/wire.h"

#define PACKET_HEAD_MAX 208  /* header and the largest part that is built, not pointed to */
#define PACKET_POINTS_MAX 66 /* pieces that are pointed to */

/* Serial numbers (RFC 1982): is a before b, when they are less than 2^31 apart? */
static inline bool frame_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

/* a <= b <= c. */
static inline bool frames_in_order(uint32_t a, uint32_t b, uint32_t c)
{
	return !frame_before(b, a) && !frame_before(c, b);
}

static inline bool sequence_before(uint16_t a, uint16_t b)
{
	return (int16_t)(uint16_t)(a - b) < 0;
}

/* Can it be the exponent of a segment of f32? Converters rely on it. */
static inline bool exponent_possible(int16_t exponent)
{
	return exponent == WIRE_EXPONENT_NONE ||
	       (exponent >= WIRE_EXPONENT_MIN && exponent <= WIRE_EXPONENT_MAX);
}

/* A datagram as it came, for a machine that parses it itself. */
struct arrival {
	const void *data;
	uint32_t bytes;
	uint64_t came_us; /* when the system received it; 0: not known */
	bool marked;      /* ECN: a queue on its way was long */
};

/* A received packet; points into the receiver's buffer. */
struct packet {
	uint8_t kind; /* enum wire_kind */
	uint16_t channel;
	uint16_t worker;
	uint64_t token; /* stands where seals do; of a sealed packet that was right, put there */
	uint32_t frame;
	uint32_t edge; /* ack or base */
	union {
		uint64_t number; /* KNOCK and KNOCKED have it, the others what follows */
		struct {
			uint16_t window;
			uint16_t sequence;
			union {
				uint32_t planned, pushed;
			};
		};
	};
	const uint8_t *body; /* what follows the header; any alignment */
	uint32_t body_bytes;
	uint64_t came_us; /* as in struct arrival; packet_parse() says 0 */
	bool marked;      /* as in struct arrival; packet_parse() says false */
};

/* What follows an announcement's or a plan's fields: a set of blocks, and perhaps these blocks. */
struct packet_set {
	const uint8_t *data; /* as bits_read() takes it; none if all or no blocks are in the set */
	uint32_t bytes;
	const uint8_t *blocks; /* if eager; their sums in a plan */
	uint32_t blocks_bytes;
};

struct announce {
	uint64_t tag;
	uint64_t count;
	uint64_t layout;
	uint32_t segment, segment_count;
	uint32_t generation;
	uint16_t op_slot;
	uint16_t block_count; /* blocks of the segment */
	uint32_t block_elems; /* elements of a block: 1 .. WIRE_BLOCK_ELEMS_MAX */
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
	struct wire_mismatch mismatch; /* only when status is WIRE_MISMATCH */
	struct packet_set set;
};

struct status {
	uint32_t stamp;
	uint32_t held, marked;
	bool asks;
	uint32_t first; /* frame: of the first bit */
	uint32_t word_count;
	uint64_t words[WIRE_STATUS_WORDS_MAX]; /* frames that its sender lacks */
};

/* Lists a frame, after those before it; false if there is no room for it. */
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
 * A packet to send, as a list of pieces: the built head, then memory that it
 * points to, which stays as it is until the machine that made it is next given a
 * packet. `scratch` is the caller's: [payload bytes] that a machine may convert
 * into and point at; the caller sets it once.
 */
struct packet_out {
	uint16_t dest;     /* a rank, or WIRE_EVERYONE */
	uint16_t receiver; /* to everyone: a rank, others get the head alone; or WIRE_EVERYONE */
	uint16_t piece_count;
	uint32_t bytes; /* of all pieces */
	void *scratch;
	struct iovec pieces[1 + PACKET_POINTS_MAX]; /* [0]: the head */
	uint8_t head[PACKET_HEAD_MAX];
};

/*
 * packet_parse - the header of `bytes` bytes at `data`. `to_worker` says which
 * direction is expected. Returns WIRE_DROP_NONE, or why the packet is no good.
 */
enum wire_drop packet_parse(const void *data, uint32_t bytes, bool to_worker, struct packet *out);

/* The bodies; each returns WIRE_DROP_NONE, _SHORT or _LENGTH. */
enum wire_drop announce_parse(const struct packet *packet, struct announce *out);
enum wire_drop plan_parse(const struct packet *packet, struct plan *out);

enum wire_drop status_parse(const struct packet *packet, struct status *out);

/* Begin `out` with a header, to which it adds magic and version; `seal` is the token. Leaves dest to the caller. */
void packet_begin(struct packet_out *out, const struct wire_header *head);

/*
 * Append to the built head (announce, plan, status). Of a set only `bytes` counts, and only if the
 * operation is eager: the caller points at the set, and then at the blocks.
 */
void packet_put_announce(struct packet_out *out, const struct announce *announce);
void packet_put_plan(struct packet_out *out, const struct plan *plan);
void packet_put_status(struct packet_out *out, const struct status *status);

/* Bytes behind the head so far. */
static inline uint32_t packet_body_bytes(const struct packet_out *out)
{
	return out->bytes - (uint32_t)out->pieces[0].iov_len;
}

/* Append memory to point at; adjoining pieces are merged. Bytes may be 0. */
void packet_point(struct packet_out *out, const void *data, uint32_t bytes);

/* "short", "bad magic" and so on: the label of a counter. */
const char *drop_name(enum wire_drop drop);

/* packet_form_name - "native", "fixed32", ..; "?" for what is no enum wire_form */
const char *packet_form_name(uint64_t form);

#endif /* EBPF_PACKET_H */
