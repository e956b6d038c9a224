/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fastpath.h - the memory that winnowd and the XDP program share
 *
 * Frames of int32 jobs are added up where they arrive, by the XDP program, in slots that
 * winnowd has opened; winnowd itself adds what reaches its socket in the same slots, so a
 * packet may come by either road. docs/ARCHITECTURE.md, "The fast path", has the rules:
 *
 * - User space opens and closes slots; the kernel never does. A slot is open for one frame until
 *   base has passed that frame, which takes an ack of every worker.
 * - Whoever adds to a slot, or changes `frame` or `state`, holds its lock. The kernel tries
 *   FAST_LOCK_TRIES times and then passes the packet up, so a preempted daemon costs a
 *   detour and never a stuck CPU.
 * - `state` goes CLOSED, OPEN, DONE. Once DONE, data and the rest stay as they are until
 *   the slot is opened anew. Who reads them without the lock looks at `frame` again afterwards.
 * - What the kernel does not finish it passes up unchanged: XDP_PASS is always right.
 *
 * Little-endian hosts only, as are the packets. Compiled by gcc and by clang -target bpf; includes
 * <linux/types.h> and nothing else. All of it is memory-mapped: no field is a pointer.
 */
#ifndef EBPF_FASTPATH_H
#define EBPF_FASTPATH_H

#include <linux/types.h>

#include "ebpf/seal_words.h"
#include "ebpf/wire.h"

#define FAST_WORKERS_MAX 64   /* of a job on the fast path: bits of `came` */
#define FAST_BLOCKS_MAX 64    /* of a frame: bits of `touched`. Others are user space's alone */
#define FAST_CHANNELS_MAX 128 /* at a time */
#define FAST_DATA_BYTES 3456  /* of a frame: MTU 3498 less all headers, in whole 64 bytes */
#define FAST_PAYLOAD_MAX (WIRE_HEADER_BYTES + FAST_DATA_BYTES)
#define FAST_ADDRESSES_MAX 8 /* of IPv6, at which the kernel takes datagrams */
#define FAST_LOCK_TRIES 2048
#define FAST_KEY_GROUP FAST_WORKERS_MAX /* of fast_channel's keys */

enum fast_state { FAST_CLOSED, FAST_OPEN, FAST_DONE };

/* One value of the map `slots`; a channel's are at first_slot + (frame & window_mask). */
struct fast_slot {
	__u32 lock;  /* 0 free, 1 taken; by exchange */
	__u32 state; /* enum fast_state */
	__u32 frame;
	__u16 expected;    /* workers that own a block of it */
	__u16 arrived;     /* workers whose block has come */
	__u32 unit_bytes;  /* of one block, or part of a block; a multiple of 4 */
	__u16 block_count; /* block_count * unit_bytes <= FAST_DATA_BYTES */
	__u16 private;     /* one worker alone gets its data: the kernel adds, user space sends */
	__u32 sent;        /* the RESULT has gone out to everyone */
	__u32 sequence;    /* the number that RESULT went out with */
	__u64 came;        /* a bit for each worker whose PUSH has been added */
	__u64 touched;     /* a bit for each block that holds a sum */
	__u64 owned[FAST_WORKERS_MAX]; /* the blocks of each worker, in a row; 0: none */
	__u8 data[FAST_DATA_BYTES];
};

/* Of one channel, by whoever did it; added to with atomic additions. */
enum fast_stat {
	FAST_STAT_RECEIVED,       /* packets that the kernel kept from user space */
	FAST_STAT_RECEIVED_BYTES, /* UDP payloads of these packets */
	FAST_STAT_PUSHES,         /* PUSHes added by the kernel */
	FAST_STAT_RESULTS,        /* frames that it completed */
	FAST_STAT_SENT,           /* RESULTs that it sent */
	FAST_STAT_SENT_BYTES,     /* UDP payloads of these RESULTs */
	FAST_STAT_SINGLE,         /* of the results, those with one contributor */
	FAST_STAT_DUPLICATES,
	FAST_STAT_COUNT,
};

/* Where a worker is, network byte order; of the family that it does not use, zeros. */
struct fast_home {
	__u64 six[2];
	__u32 four;
	__u16 port;
	__u16 reserved;
};

/* One value of the map `channels`. User space fills it in, then sets `active`. */
struct fast_channel {
	__u32 active; /* 0: pass everything */
	__u16 id;
	__u16 worker_count; /* at most FAST_WORKERS_MAX */
	__u32 first_slot;
	__u32 window_mask; /* window - 1 */
	__u64 group_token;
	__u32 multicast;  /* the kernel may send to the group: all workers hear it */
	__u32 group_ip;   /* network byte order; 0: the group is not of IPv4 */
	__u16 group_port; /* network byte order */
	__u8 ttl;
	__u8 sealed; /* datagrams carry seals; else tokens */
	__u8 tos;    /* of what it sends: DSCP and ECN, in IPv6 the traffic class */
	__u8 reserved[3];
	__u64 group_six[2]; /* the group, if it is of IPv6; else zeros */
	__u64 tokens[FAST_WORKERS_MAX];
	struct seal_key keys[FAST_WORKERS_MAX + 1]; /* of each worker, then of what we send */
	struct seal_stretch stretch;

	/* User: wo. Kernel: ro, copied into what it sends; base's upper half is in seals only. */
	__u64 base;
	__u32 planned;
	__u32 credit;    /* frames before it may be pushed; never before base + 1 */
	__u32 call_mask; /* the PUSHes of frames that have all these bits go up: see ack */

	/* Both, by atomic addition: of the last RESULT sent to everyone; its low 16 bits count. */
	__u32 sequence;

	/* Kernel: wo. User: ro. What the last RESULT to everyone carried. */
	__u32 told_base, told_credit;

	/*
	 * Kernel: wo. User: ro. The latest ack that a PUSH of each worker carried, and the furthest that
	 * ack and window reached. At least four times in what may be pushed, the PUSHes of a frame go up
	 * once they are added: that wakes user space, which then looks at all of both.
	 */
	__u32 ack[FAST_WORKERS_MAX], room[FAST_WORKERS_MAX];

	/*
	 * Kernel: wo. User: ro. Datagrams of each worker that came with congestion marked (ECN), and that
	 * user space did not see; it counts the others itself.
	 */
	__u32 marked[FAST_WORKERS_MAX];

	/* Kernel: wo. User: ro. A bit for each worker whose KNOCK came by the device. */
	__u64 knocked;

	/*
	 * User: wo. Kernel: ro. Where each worker's KNOCK came from. What comes from elsewhere is
	 * dropped, but for a KNOCK.
	 */
	struct fast_home home[FAST_WORKERS_MAX];

	__u64 stats[FAST_STAT_COUNT];
};

/* The one value of the map `settings`. */
struct fast_settings {
	__u32 ip;   /* network byte order; the listening address, or the device's; 0: any */
	__u16 port; /* network byte order */
	__u16 reserved;
	__u64 six[FAST_ADDRESSES_MAX][2]; /* addresses of IPv6; zeros: none, left to user space */
	/*
	 * By channel number: 0 unknown, so drop; FAST_KNOWN_USER, user space alone; else the
	 * index of its struct fast_channel plus FAST_KNOWN_FIRST.
	 */
	__u8 known[65536];
};

#define FAST_KNOWN_USER 1
#define FAST_KNOWN_FIRST 2

/* The map `counters`, one value a CPU: the drop reasons of wire.h, then these. */
enum fast_counter {
	FAST_COUNT_PASSED = WIRE_DROP_COUNT, /* datagrams to our port that went up */
	FAST_COUNT_ADDED,
	FAST_COUNT_BUSY,    /* the lock was taken for too long: passed up */
	FAST_COUNT_NO_ROOM, /* the packet could not grow to a RESULT: passed up */
	FAST_COUNT_MERGED, /* longer than its PUSH: several that an offload has put together; passed up */
	FAST_COUNTER_COUNT,
};

#endif /* EBPF_FASTPATH_H */
