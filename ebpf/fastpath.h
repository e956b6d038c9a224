/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fastpath.h - the memory that winnowd and the XDP program share
 *
 * The XDP program adds frames of int32 jobs where they arrive, in slots that winnowd has opened.
 * winnowd adds the packets that reach its socket in the same slots, so a packet may take either
 * way. ARCHITECTURE.md, "The fast path", has the rules:
 *
 * - User space opens and closes slots; the kernel never does. A slot is open for one frame until
 *   base has passed that frame, which takes an ack of every worker.
 * - Code that adds to a slot, or changes `frame` or `state`, holds its lock. The kernel tries
 *   FAST_LOCK_TRIES times and then passes the packet up, so a preempted daemon costs a detour and
 *   never a stuck CPU.
 * - `state` goes CLOSED, OPEN, DONE. After DONE nothing changes until the slot is opened again. A
 *   reader without the lock checks afterwards that `frame` is still the same.
 * - The kernel passes up unchanged what it does not finish: XDP_PASS is always right.
 *
 * Hosts are little-endian, like the packets. gcc and clang -target bpf compile this file, so it
 * includes only <linux/types.h>. All of it is mapped memory, so no field is a pointer.
 */
#ifndef EBPF_FASTPATH_H
#define EBPF_FASTPATH_H

#include <linux/types.h>

#include "ebpf/seal_words.h"
#include "ebpf/wire.h"

#define FAST_WORKERS_MAX 64   /* of a job on the fast path: the bits of `came` */
#define FAST_BLOCKS_MAX 64    /* of a frame: the bits of `touched`; user space does larger ones */
#define FAST_CHANNELS_MAX 128 /* on the fast path at the same time */
#define FAST_DATA_BYTES 3456  /* of a frame: MTU 3498 less all headers, in whole 64 bytes */
#define FAST_PAYLOAD_MAX (WIRE_HEADER_BYTES + FAST_DATA_BYTES)
#define FAST_ADDRESSES_MAX 8 /* IPv6 addresses at which the kernel takes datagrams */
#define FAST_LOCK_TRIES 2048
#define FAST_KEY_GROUP FAST_WORKERS_MAX /* index into fast_channel's keys */

enum fast_state { FAST_CLOSED, FAST_OPEN, FAST_DONE };

/* A value of the map `slots`. A channel's slots are at first_slot + (frame & window_mask). */
struct fast_slot {
	__u32 lock;  /* 0 free, 1 taken; set by an atomic exchange */
	__u32 state; /* enum fast_state */
	__u32 frame;
	__u16 expected;    /* workers that own a block of it */
	__u16 arrived;     /* workers whose block has come */
	__u32 unit_bytes;  /* bytes of a block, or of a part of a block; a multiple of 4 */
	__u16 block_count; /* block_count * unit_bytes <= FAST_DATA_BYTES */
	__u16 private;     /* only one worker gets the sums: the kernel adds, user space sends */
	__u32 sent;        /* set when the RESULT has been sent to everyone */
	__u32 sequence;    /* the sequence number of that RESULT */
	__u64 came;        /* a bit for each worker whose PUSH has been added */
	__u64 touched;     /* a bit for each block that holds a sum */
	__u64 owned[FAST_WORKERS_MAX]; /* [worker]: the set of its blocks; 0: none */
	__u8 data[FAST_DATA_BYTES];
};

/* Counters of a channel, raised by atomic additions in the kernel and in user space. */
enum fast_stat {
	FAST_STAT_RECEIVED,       /* packets that the kernel kept from user space */
	FAST_STAT_RECEIVED_BYTES, /* UDP payloads of these packets */
	FAST_STAT_PUSHES,         /* PUSHes added by the kernel */
	FAST_STAT_RESULTS,        /* frames that it completed */
	FAST_STAT_SENT,           /* RESULTs that it sent */
	FAST_STAT_SENT_BYTES,     /* UDP payloads of these RESULTs */
	FAST_STAT_SINGLE,         /* results with one contributor */
	FAST_STAT_DUPLICATES,
	FAST_STAT_COUNT,
};

/* A worker's address in network byte order. The fields of the family that it does not use are 0. */
struct fast_home {
	__u64 six[2];
	__u32 four;
	__u16 port;
	__u16 reserved;
};

/* A value of the map `channels`. User space fills it in, then sets `active`. */
struct fast_channel {
	__u32 active; /* 0: the kernel passes everything up */
	__u16 id;
	__u16 worker_count; /* at most FAST_WORKERS_MAX */
	__u32 first_slot;
	__u32 window_mask; /* window - 1 */
	__u64 group_token;
	__u32 multicast;  /* the kernel may send to the group, because all workers hear it */
	__u32 group_ip;   /* network byte order; 0 for an IPv6 group */
	__u16 group_port; /* network byte order */
	__u8 ttl;
	__u8 sealed; /* datagrams carry seals; otherwise they carry tokens */
	__u8 tos;    /* of sent packets: DSCP and ECN; the traffic class in IPv6 */
	__u8 reserved[3];
	__u64 group_six[2]; /* the group, or zeros for an IPv4 group */
	__u64 tokens[FAST_WORKERS_MAX];
	struct seal_key keys[FAST_WORKERS_MAX + 1]; /* each worker's, then the group's */
	struct seal_stretch stretch;

	/* User: wo. Kernel: ro, copied into packets; the upper half of base is only in seals. */
	__u64 base;
	__u32 planned;
	__u32 credit;    /* frames before it may be pushed; at least base + 1 */
	__u32 call_mask; /* PUSHes of frames that have all these bits go up: see ack */

	/* Both raise it atomically. The low 16 bits number the last RESULT sent to everyone. */
	__u32 sequence;

	/* Kernel: wo. User: ro. The base and credit in the last RESULT to everyone. */
	__u32 told_base, told_credit;

	/*
	 * Kernel: wo. User: ro. Each worker's latest ack in a PUSH, and the furthest that its ack
	 * plus window has reached. At least four times per window the PUSHes of one frame go up
	 * after they are added, which makes user space look at both arrays.
	 */
	__u32 ack[FAST_WORKERS_MAX], room[FAST_WORKERS_MAX];

	/*
	 * Kernel: wo. User: ro. Each worker's datagrams with congestion marks (ECN) that user space
	 * did not see. It counts the others itself.
	 */
	__u32 marked[FAST_WORKERS_MAX];

	/* Kernel: wo. User: ro. A bit for each worker whose KNOCK came through the device. */
	__u64 knocked;

	/*
	 * User: wo. Kernel: ro. The address that each worker knocked from. The kernel drops
	 * datagrams from elsewhere, except a KNOCK.
	 */
	struct fast_home home[FAST_WORKERS_MAX];

	__u64 stats[FAST_STAT_COUNT];
};

/* The one value of the map `settings`. */
struct fast_settings {
	__u32 ip;   /* network byte order; the listening address, or the device's; 0: any */
	__u16 port; /* network byte order */
	__u16 reserved;
	__u64 six[FAST_ADDRESSES_MAX][2]; /* IPv6 addresses, zeros where unused */
	/*
	 * By channel number: 0 for unknown channels, whose packets are dropped; FAST_KNOWN_USER for
	 * user space's; else the index of its struct fast_channel plus FAST_KNOWN_FIRST.
	 */
	__u8 known[65536];
};

#define FAST_KNOWN_USER 1
#define FAST_KNOWN_FIRST 2

/* The counters of the map `counters`, for each CPU: the drop reasons of wire.h, then these. */
enum fast_counter {
	FAST_COUNT_PASSED = WIRE_DROP_COUNT, /* datagrams to our port that were passed up */
	FAST_COUNT_ADDED,
	FAST_COUNT_BUSY,    /* passed up, because the lock was taken for too long */
	FAST_COUNT_NO_ROOM, /* passed up, because the packet could not grow to a RESULT */
	FAST_COUNT_MERGED,  /* passed up, because an offload may have merged several datagrams */
	FAST_COUNTER_COUNT,
};

#endif /* EBPF_FASTPATH_H */
