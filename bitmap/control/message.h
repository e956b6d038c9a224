/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * message.h - the messages of the control connection, to and from JSON (PROTOCOL.md, section 5)
 *
 * One struct holds the fields of all messages. A table in message.c says which kinds use a field.
 * Parsing fails unless each of them is present and within its range. Those that may be missing
 * are then 0. Unknown fields are ignored, so that later versions may add some.
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
#define CONTROL_CHANNELS_MAX 64  /* the most that one aggregator gives to one job */

enum control_kind {
	CONTROL_HELLO = 1, /* aggregator: version and abilities */
	CONTROL_JOIN,      /* worker: which job it joins, and as what */
	CONTROL_WELCOME,   /* aggregator: all workers are here; the job's numbers follow */
	CONTROL_READY,     /* worker: its datagrams arrive, up to this size */
	CONTROL_START,     /* aggregator: the job begins */
	CONTROL_PING,      /* either: a sign of life */
	CONTROL_LEAVE,     /* worker: it has finished */
	CONTROL_LEFT,      /* aggregator: the worker of that rank has finished */
	CONTROL_ABORT,     /* worker: it ends the job, and why */
	CONTROL_FAILED,    /* aggregator: the job, or this worker's joining, has ended, and why */
	CONTROL_PATH,      /* worker: its datagrams get no answers any more */
	CONTROL_STAY,      /* worker: it wants to continue in the next membership */
	CONTROL_NEXT,      /* aggregator: the membership to join */
};
#define CONTROL_KINDS CONTROL_NEXT

/* What a running worker's PING says about its path to this aggregator since START. */
struct control_seen {
	uint32_t rtt_us;         /* Smoothed, the longest of all channels; 0 until measured. */
	uint32_t rtt_least_us;   /* The shortest ever. */
	uint32_t frames;         /* Frames that all channels together may have in flight now. */
	uint64_t held_window_us; /* How long `frames` kept it from pushing, per channel. */
	uint64_t held_credit_us; /* How long missing acknowledgements of others did, per channel. */
	/* Datagrams sent, those of them that the network marked, PUSHes, and PUSHes sent again. */
	uint64_t out, out_marked, pushes, out_lost;
	/* Datagrams received, those of them that the network marked, and those that were lost. */
	uint64_t in, in_marked, in_lost;
};

/* First the fields that several kinds have, then the fields of single kinds. */
struct control_message {
	enum control_kind kind;
	uint32_t version;                  /* HELLO, JOIN; parsing stops at another one */
	char software[CONTROL_NAME_BYTES]; /* HELLO, JOIN; for logs */
	char job[CONTROL_JOB_BYTES];       /* JOIN: the job to join; STAY: the last one joined */
	uint32_t rank;                     /* JOIN, LEFT, FAILED; STAY: the rank in `job` */
	uint32_t payload; /* bytes of the largest UDP payload that may pass; START: that is used */
	uint32_t silence_ms, stall_ms; /* JOIN: as this worker wants it; WELCOME: as used */
	uint32_t window;               /* WELCOME, START */
	bool multicast;                /* READY, START */
	bool drains;                   /* HELLO, an aggregator's PING: no new jobs */
	uint64_t without;              /* STAY, NEXT: aggregators that are left out, as bits */
	char code[CONTROL_NAME_BYTES]; /* FAILED, ABORT: one word for programs */
	char text[CONTROL_TEXT_BYTES]; /* FAILED, ABORT, LEFT: for people; PING: JOBS_LATE_US */

	struct { /* JOIN */
		char host[CONTROL_NAME_BYTES];
		uint32_t world;
		uint32_t rcvbuf; /* size of the worker's receive buffer */
		/* The site that the worker joins through, by its name and a number drawn by it; or "" and 0. */
		char site[CONTROL_NAME_BYTES];
		uint64_t via;
	};
	struct { /* WELCOME */
		uint32_t channel_count;
		uint16_t channels[CONTROL_CHANNELS_MAX];
		uint8_t seed[SECRET_BYTES];  /* of datagrams' keys; zero in jobs without a key */
		uint64_t token, group_token; /* only in jobs without a key */
		uint32_t op_slots, segments_ahead, first_frame;
		char group[CONTROL_ADDRESS_BYTES];        /* "239.77.1.2:5555"; "": no multicast */
		char data_address[CONTROL_ADDRESS_BYTES]; /* of datagrams; "": this line's */
	};
	struct {                       /* START */
		uint32_t window_start; /* frames that a worker may have in flight at first */
		bool fast;             /* the kernel adds int32 frames, so fixed32 pays */
	};
	struct {                  /* PATH */
		uint32_t channel; /* on which datagrams of `payload` bytes get no answer */
		uint32_t sent;    /* how many of them were sent */
		uint32_t passing; /* the largest size that is answered; 0: none */
	};
	struct {                               /* PING */
		uint32_t open;                 /* A worker's unfinished operations. */
		uint64_t tag;                  /* The tag of the oldest of them. */
		struct control_seen seen;      /* Not given where `frames` is 0. */
		char says[CONTROL_NAME_BYTES]; /* What its program says for people; may be "". */
		uint32_t waiting; /* An aggregator's workers that wait for admission. */
	};
	struct {                               /* STAY */
		char begun[CONTROL_JOB_BYTES]; /* The last membership whose START it got, or "". */
		uint32_t of;                   /* Workers of the membership `job`. */
		bool holds;                    /* The worker has the state of the job. */
		uint32_t admit;                /* Newcomers that may be admitted; 0: none. */
	};
	struct {                              /* NEXT */
		char next[CONTROL_JOB_BYTES]; /* the membership that the receiver is to join */
		uint32_t next_rank, next_world;
		uint32_t came; /* how many of its members are newcomers */
	};
};

/*
 * message_parse - returns 0, or -EINVAL with a short reason in `why`. Then only out->kind may be
 * used, which is 0 if not even the type was readable.
 */
int message_parse(const char *line, struct control_message *out, struct why *why);

/*
 * message_format - returns one line with its newline in allocated memory, or NULL if memory is
 * short. message_free() also wipes the line, because WELCOME has a seed.
 */
char *message_format(const struct control_message *message);
void message_free(char *line); /* NULL is fine */

/* Tells whether a job that FAILED with this code can continue with the workers that are not lost. */
bool message_code_continues(const char *code);

/* Times are in microseconds. This one never comes. */
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
 * Returns the time from which a peer's silence counts. A side that looks at its peers a quarter of
 * the silence time late stood still itself (a paused virtual machine, no CPU). 11.2: "Whoever stood
 * still itself reads what has come first, and does not count that time as silence".
 */
static inline uint64_t control_heard_us(uint64_t heard_us, uint64_t silence_us, uint64_t looked_us,
                                        uint64_t now_us)
{
	uint64_t gap_us = now_us - looked_us;

	if (gap_us > silence_us / 2)
		heard_us += gap_us - silence_us / 4;
	return heard_us < now_us ? heard_us : now_us;
}

/* Bytes as lower-case hex digits. Reading fails on any other text; writing adds a zero byte. */
bool message_hex_read(const char *text, uint8_t *out, size_t bytes);
char *message_hex_write(const uint8_t *from, size_t bytes, char *out);

/*
 * MEMBERS.md 1. Tells whether a text is a job name: "NAME" or "NAME/MEMBERSHIP", each 1 to 64
 * letters, digits, '.', '_' or '-'. Memberships of a name are separate jobs with the same key.
 */
bool message_name_valid(const char *name);
size_t message_name_base(const char *name); /* length of NAME */

/*
 * A job's first aggregator names memberships "NAME/next." and 16 hex digits, a number that grows
 * with each (MEMBERS.md). The number is 0 for a membership that somebody else has named.
 */
#define CONTROL_NEXT_NAME "next."
bool message_name_is_next(const char *name);
uint64_t message_name_number(const char *name);

#endif /* BITMAP_CONTROL_MESSAGE_H */
