/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * message.h - the messages of the control connection, to and from JSON
 *
 * PROTOCOL.md section 5. One struct holds the fields of all messages; each kind uses
 * those that its table entry in message.c names, and parsing fails unless every one of
 * them is there and within its range; those that may be missing are then 0. Unknown fields are
 * ignored, so that later versions may add some.
 */
#ifndef BITMAP_CONTROL_MESSAGE_H
#define BITMAP_CONTROL_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bitmap/control/secrets.h"
#include "bitmap/why.h"

#define CONTROL_NAME_BYTES 65
#define CONTROL_JOB_BYTES (2 * CONTROL_NAME_BYTES) /* "NAME/MEMBERSHIP" */
#define CONTROL_TEXT_BYTES 320
#define CONTROL_ADDRESS_BYTES 56 /* "[", an IPv6 address, "]:65535" */
#define CONTROL_CHANNELS_MAX 64  /* of one aggregator for one job */

enum control_kind {
	CONTROL_HELLO = 1, /* aggregator: what I am */
	CONTROL_JOIN,      /* worker: who I am */
	CONTROL_WELCOME,   /* aggregator: all are here; these are your numbers */
	CONTROL_READY,     /* worker: my packets arrive, up to this size */
	CONTROL_START,     /* aggregator: go */
	CONTROL_PING,      /* either: I am alive */
	CONTROL_LEAVE,     /* worker: done */
	CONTROL_LEFT,      /* aggregator: that rank is done */
	CONTROL_ABORT,     /* worker: end the job, because */
	CONTROL_FAILED,    /* aggregator: the job, or your joining it, has ended, because */
	CONTROL_PATH,      /* worker: my datagrams get no answers any more */
	CONTROL_STAY,      /* worker: I want to continue, in the membership that you name */
	CONTROL_NEXT,      /* aggregator: join this membership */
};
#define CONTROL_KINDS CONTROL_NEXT /* from 1 on */

/* PING of a worker, running: what it has seen of its path to this aggregator since START. */
struct control_seen {
	uint32_t rtt_us;         /* smoothed, the longest of all channels; 0: not measured yet */
	uint32_t rtt_least_us;   /* the shortest ever */
	uint32_t frames;         /* that all channels together may have under way now */
	uint64_t held_window_us; /* for so long `frames` kept it from pushing, */
	uint64_t held_credit_us; /* and for so long the acknowledgements of others; per channel */
	/* Datagrams: to the aggregator, marked by the network; PUSHes, asked for again; and from it. */
	uint64_t out, out_marked, pushes, out_lost;
	uint64_t in, in_marked, in_lost;
};

/* What several kinds have, and then the parts that one kind has alone. */
struct control_message {
	enum control_kind kind;
	uint32_t version;                  /* HELLO, JOIN: if it is another, nothing else is read */
	char software[CONTROL_NAME_BYTES]; /* HELLO, JOIN: for logs */
	char job[CONTROL_JOB_BYTES];       /* JOIN: the one to join; STAY: the last one joined */
	uint32_t rank;                     /* JOIN, LEFT, FAILED; STAY: the one in `job` */
	uint32_t payload; /* UDP payload bytes: the most that may work; in START: what is used */
	uint32_t silence_ms, stall_ms; /* JOIN: as this worker wants it; WELCOME: what holds */
	uint32_t window;               /* WELCOME, START */
	bool multicast;                /* READY, START */
	bool drains;                   /* HELLO, PING of an aggregator: it takes no new jobs */
	uint64_t without; /* STAY, NEXT: places of aggregators that are left out, as bits */
	char code[CONTROL_NAME_BYTES]; /* FAILED, ABORT: one word for programs */
	char text[CONTROL_TEXT_BYTES]; /* FAILED, ABORT, LEFT: for people; PING: JOBS_LATE_US */

	struct { /* JOIN */
		char host[CONTROL_NAME_BYTES];
		uint32_t world;
		uint32_t rcvbuf; /* bytes of the worker's receive buffer */
	};
	struct { /* WELCOME */
		uint32_t channel_count;
		uint16_t channels[CONTROL_CHANNELS_MAX];
		uint8_t seed[SECRET_BYTES];  /* of datagrams' keys; zero when there is no key, */
		uint64_t token, group_token; /* and these when there is one */
		uint32_t op_slots, segments_ahead, first_frame;
		char group[CONTROL_ADDRESS_BYTES];        /* "239.77.1.2:5555"; "": no multicast */
		char data_address[CONTROL_ADDRESS_BYTES]; /* of datagrams; "": this line's */
	};
	struct {                       /* START */
		uint32_t window_start; /* frames a worker may have under way at first */
		bool fast; /* int32 frames are added by the kernel; fixed32 is worth choosing */
	};
	struct {                  /* PATH */
		uint32_t channel; /* its datagrams of `payload` bytes are not answered, */
		uint32_t sent;    /* so many of them; */
		uint32_t passing; /* those of so many bytes are; 0: none */
	};
	struct {                               /* PING */
		uint32_t open;                 /* a worker's operations under way, */
		uint64_t tag;                  /* and the oldest one's; */
		struct control_seen seen;      /* frames 0: it does not say */
		char says[CONTROL_NAME_BYTES]; /* its program, for people; "": nothing */
		uint32_t waiting; /* an aggregator's workers that want to become members */
	};
	struct {                               /* STAY */
		char begun[CONTROL_JOB_BYTES]; /* the last one whose START it got; "": none */
		uint32_t of;                   /* workers of the membership `job` */
		bool holds;                    /* the worker has the state of the job */
		uint32_t admit;                /* so many newcomers may come; 0: none */
	};
	struct {                              /* NEXT */
		char next[CONTROL_JOB_BYTES]; /* the membership that the receiver is to join */
		uint32_t next_rank, next_world;
		uint32_t came; /* so many of its members are newcomers */
	};
};

/*
 * message_parse - 0; or -EINVAL with a short reason in `why`. Then only out->kind may be used: 0 if
 * not even the type could be read.
 */
int message_parse(const char *line, struct control_message *out, struct why *why);

/*
 * message_format - one line with its newline, in malloc'ed memory; NULL: out of memory. message_free() wipes it as well:
 * WELCOME has a seed.
 */
char *message_format(const struct control_message *message);
void message_free(char *line); /* NULL: nothing */

/* After the end of a job with this code (FAILED), can workers that are not lost continue? */
bool message_code_continues(const char *code);

/* Times are in microseconds. This one does not come. */
#define NEVER UINT64_MAX

static inline void sooner(uint64_t *due_us, uint64_t when_us)
{
	if (when_us < *due_us)
		*due_us = when_us;
}

/* 11.5: "the silence time, or three quarters of the stall time if that is less": before operations stall. */
static inline uint64_t control_path_us(uint64_t silence_us, uint64_t stall_us)
{
	return silence_us < stall_us / 4 * 3 ? silence_us : stall_us / 4 * 3;
}

/*
 * When a peer was heard, as its silence counts. A side that looks at its peers later than usual, a quarter of the
 * silence time after it last did, stood still: a paused virtual machine, no CPU. 11.2: "Whoever stood still itself reads
 * what has come first, and does not count that time as silence".
 */
static inline uint64_t control_heard_us(uint64_t heard_us, uint64_t silence_us, uint64_t looked_us,
                                        uint64_t now_us)
{
	uint64_t gap_us = now_us - looked_us;

	if (gap_us > silence_us / 2)
		heard_us += gap_us - silence_us / 4;
	return heard_us < now_us ? heard_us : now_us;
}

/* Bytes as lower-case hex digits, two each. Reading: false if it is something else. `out`: for a zero byte as well. */
bool message_hex_read(const char *text, uint8_t *out, size_t bytes);
char *message_hex_write(const uint8_t *from, size_t bytes, char *out);

/*
 * MEMBERS.md 1. Is it a job name: "NAME" or "NAME/MEMBERSHIP", each 1 to 64 letters, digits, '.', '_' or '-'? Memberships
 * of a name are jobs of their own, which have its key.
 */
bool message_name_valid(const char *name);
size_t message_name_base(const char *name); /* characters of NAME */

/*
 * The first aggregator of a job names memberships "NAME/next." and 16 hex digits, a number that is higher for each
 * (MEMBERS.md). 0: somebody else has named it.
 */
#define CONTROL_NEXT_NAME "next."
bool message_name_is_next(const char *name); /* does its membership's name begin so? */
uint64_t message_name_number(const char *name);

#endif /* BITMAP_CONTROL_MESSAGE_H */
