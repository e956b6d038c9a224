/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wire.h - the bytes of the aggregation protocol, version 3
 *
 * PROTOCOL.md says what the messages mean and when they are sent; this file only says where the
 * bytes are. All numbers are little-endian. gcc, clang -target bpf and nvcc compile it, so it
 * includes only <linux/types.h> and holds no function. It is in ebpf/ because every folder may
 * include that one.
 */
#ifndef EBPF_WIRE_H
#define EBPF_WIRE_H

#include <linux/types.h>

#define WIRE_MAGIC 0x4e57 /* "WN", the first two bytes of the payload */
#define WIRE_VERSION 3

/* Limits that the format itself sets (PROTOCOL.md section 4). */
#define WIRE_WORKERS_MAX 4096 /* workers of one job */
#define WIRE_SHARDS_MAX 256   /* channels that share one tensor */
#define WIRE_BLOCK_ELEMS_MAX 65536
#define WIRE_SEGMENT_BLOCKS_MAX 16384
#define WIRE_EAGER_SEGMENTS 4         /* of an operation whose announcements carry its blocks */
#define WIRE_SEGMENT_BYTES (4u << 20) /* the intended size of a segment */
#define WIRE_WINDOW_MAX 8192          /* frames: a quarter of the range of `sequence` */
#define WIRE_STATUS_WORDS_MAX 16      /* 2.5: "none to 16 words of 64 bits" */
#define WIRE_PAYLOAD_MIN 584   /* UDP payload bytes: an announcement and a bitmap of 4032 blocks */
#define WIRE_PAYLOAD_MAX 65000 /* UDP payload bytes, header included */

#define WIRE_EVERYONE 0xffff /* `worker` of a packet to the whole group */

/* Bit 7 is the direction: clear to the aggregator, set to a worker. */
enum wire_kind {
	WIRE_ANNOUNCE = 1,       /* section 6: a worker's non-zero blocks in a segment */
	WIRE_PUSH = 2,           /* section 8: a worker's blocks of a frame */
	WIRE_STATUS = 3,         /* section 2.5: a worker's state, and the frames that it lacks */
	WIRE_KNOCK = 4,          /* section 5: shows a worker's address, and tests a size */
	WIRE_PLAN = 0x81,        /* section 7: the union of a segment, and its frames */
	WIRE_RESULT = 0x82,      /* section 8: the sums of a frame */
	WIRE_STATUS_BACK = 0x83, /* section 2.5: the aggregator's STATUS */
	WIRE_KNOCKED = 0x84,     /* section 5: the answer to a KNOCK, of the same size */
	WIRE_PROBE = 0x85,       /* section 5: tests whether multicast reaches the group */
};

#define WIRE_TO_WORKER 0x80

/*
 * Section 2.2: the head of every packet. The meaning of edge and of the last bytes depends on the
 * direction: an aggregator sends base and planned where a worker sends ack and pushed.
 */
struct wire_header {
	__le16 magic;
	__u8 version;
	__u8 kind;      /* enum wire_kind */
	__le16 channel; /* number of a channel; its low byte chooses the aggregator's thread */
	__le16 worker;  /* rank of the sender, or of the receiver, or WIRE_EVERYONE */
	__le64 seal;    /* section 2.4; without a key the worker's or the group's token */
	__le32 frame;   /* depends on the kind */
	__le32 edge;    /* ack: this worker has all frames before it; base: all workers have */
	union {
		__le64 number; /* of KNOCK and KNOCKED */
		struct {
			__le16 window;   /* frames before base + window may be pushed; a worker
			                  * takes frames before ack + window */
			__le16 sequence; /* 2.2: "that of the last RESULT sent to everyone" */
			union {
				__le32 planned; /* 2.2: "all frames before it have a plan" */
				__le32 pushed;  /* all its blocks of earlier frames are sent */
			};
		};
	};
};

/* Follows the header of a STATUS, before up to WIRE_STATUS_WORDS_MAX words of 64 bits. */
struct wire_status {
	__le32 stamp; /* a worker's clock, not 0; back: that of the STATUS answered, or 0 */
	__u8 flags;   /* only from a worker */
	__u8 reserved[3];
	__le32 held;   /* back: us between the STATUS answered and this one */
	__le32 marked; /* 2.5: "how many datagrams of the receiver's have come marked (2.1)" */
};

#define WIRE_STATUS_ASKS 1 /* 2.5: "it asks, and wants a STATUS in answer" */

/* Flags of ANNOUNCE and PLAN. */
#define WIRE_ALL 0x01       /* all blocks are in the set, which is left out */
#define WIRE_NONE 0x02      /* no block is in the set, which is left out */
#define WIRE_EAGER 0x04     /* the packet carries the blocks, and there are no frames */
#define WIRE_NONFINITE 0x08 /* ANNOUNCE: NaN or infinity occurs; PLAN: at any worker, 9.1 */
#define WIRE_FLAGS (WIRE_ALL | WIRE_NONE | WIRE_EAGER | WIRE_NONFINITE) /* all flags of a PLAN */
#define WIRE_SCATTER 0x10 /* ANNOUNCE only: each worker receives only its own share (section 4.5) */
#define WIRE_ANNOUNCE_FLAGS (WIRE_FLAGS | WIRE_SCATTER)

/* The types in which f32 can travel, by their numbers in section 3. */
enum wire_form {
	WIRE_NATIVE = 0, /* values travel in their own type */
	WIRE_BF16 = 3,
	WIRE_FIXED32 = 5, /* integers, section 9 */
	WIRE_FIXED16 = 7,
	WIRE_FIXED8 = 8,
};

#define WIRE_FIXED8_WORKERS_MAX 256

/* Follows the header of an ANNOUNCE. The set of blocks and, if eager, the blocks come next. */
struct wire_announce {
	__le64 tag;
	__le64 count;  /* elements of the whole tensor */
	__le64 layout; /* section 4.6: a hash of how the tensor is cut */
	__le32 segment;
	__le32 segment_count; /* of this shard */
	__le32 generation;    /* of this worker's operation slot */
	__le16 op_slot;
	__le16 block_count; /* 6.1: "of the segment, with those that do not exist (4.2)" */
	__le16 block_last;  /* 6.1: "b of the segment's part, less 1" */
	__le16 exponent;    /* signed; WIRE_EXPONENT_NONE if unknown or all zero */
	__u8 dtype;
	__u8 reduction;
	__u8 form;
	__u8 flags;
};

#define WIRE_EXPONENT_NONE (-32768)
#define WIRE_EXPONENT_MIN (-148) /* the smallest and largest of f32: section 9.1 */
#define WIRE_EXPONENT_MAX 128

/* Follows the header of a PLAN. The set of blocks and, if eager, the sums come next. */
struct wire_plan {
	__le64 tag;
	__le32 segment;
	__le32 frame_count; /* at least 1 */
	__le16 status;      /* enum wire_plan_status; if not 0, wire_mismatch follows and no set */
	__le16 exponent;    /* signed; the same for all workers */
	__u8 flags;
	__u8 reserved[3];
};

enum wire_plan_status {
	WIRE_OK = 0,
	WIRE_MISMATCH = 1, /* the workers do not agree on what to reduce */
};

/* A property that two workers disagree about. */
enum wire_field {
	WIRE_FIELD_COUNT = 1,
	WIRE_FIELD_DTYPE = 2,
	WIRE_FIELD_BLOCK = 3,
	WIRE_FIELD_REDUCTION = 4,
	WIRE_FIELD_FORM = 5,
	WIRE_FIELD_LAYOUT = 6,
	WIRE_FIELD_SCATTER = 7,
	WIRE_FIELD_SLOT = 8,
	WIRE_FIELD_EXPONENT = 9,
};

struct wire_mismatch {
	__le64 value_a; /* of rank_a */
	__le64 value_b; /* of rank_b */
	__le16 rank_a;  /* 11.1: "a is the first to announce" */
	__le16 rank_b;
	__le16 field; /* enum wire_field */
	__le16 reserved;
};

/*
 * Why a packet was dropped. 12: "Counted by reason, in this order: short, bad_magic, bad_version,
 * bad_kind, unknown_channel, bad_worker, bad_seal, bad_length". User space and XDP agree on them.
 */
enum wire_drop {
	WIRE_DROP_NONE = 0,
	WIRE_DROP_SHORT,     /* shorter than its kind needs */
	WIRE_DROP_MAGIC,     /* the magic is not ours */
	WIRE_DROP_VERSION,   /* another version of the protocol */
	WIRE_DROP_KIND,      /* unknown kind, or the wrong direction */
	WIRE_DROP_CHANNEL,   /* this channel does not exist here */
	WIRE_DROP_WORKER,    /* the rank is out of range */
	WIRE_DROP_SEAL,      /* not made with the worker's key, or not its token */
	WIRE_DROP_LENGTH,    /* length and contents disagree */
	WIRE_DROP_FRAME,     /* the frame is not open */
	WIRE_DROP_OPERATION, /* its parameters are impossible, or the segment is out of turn */
	WIRE_DROP_STALE,     /* about work that all workers have finished */
	WIRE_DROP_DUPLICATE, /* already received */
	WIRE_DROP_FULL,      /* a table is full; the sender will try again */
	WIRE_DROP_ADDRESS,   /* not from the address that the worker knocked from */
	WIRE_DROP_COUNT,
};

#define WIRE_HEADER_BYTES 32
#define WIRE_IP_UDP_BYTES 28   /* IPv4 and UDP headers, which an MTU includes */
#define WIRE_ETHERNET_BYTES 42 /* Ethernet, IPv4 and UDP headers */
#define WIRE_STATUS_BYTES 16
#define WIRE_ANNOUNCE_BYTES 48
#define WIRE_PLAN_BYTES 24
#define WIRE_SET_BYTES 2 /* if eager, the length of the set stands before it */
#define WIRE_MISMATCH_BYTES 24

#ifdef __cplusplus
#define WIRE_ASSERT static_assert
#else
#define WIRE_ASSERT _Static_assert
#endif
WIRE_ASSERT(sizeof(struct wire_header) == WIRE_HEADER_BYTES, "wire_header has padding");
WIRE_ASSERT(sizeof(struct wire_status) == WIRE_STATUS_BYTES, "wire_status has padding");
WIRE_ASSERT(sizeof(struct wire_announce) == WIRE_ANNOUNCE_BYTES, "wire_announce has padding");
WIRE_ASSERT(sizeof(struct wire_plan) == WIRE_PLAN_BYTES, "wire_plan has padding");
WIRE_ASSERT(sizeof(struct wire_mismatch) == WIRE_MISMATCH_BYTES, "wire_mismatch has padding");
WIRE_ASSERT(WIRE_PAYLOAD_MIN >= WIRE_HEADER_BYTES + WIRE_ANNOUNCE_BYTES + 8,
            "an announcement fits the smallest payload");
#undef WIRE_ASSERT

#endif /* EBPF_WIRE_H */
