/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * link.h - a worker's side of one aggregator's control plane, as a machine without I/O
 *
 * From HELLO to START: joins, knocks on every channel to show its address and to
 * find the largest datagram that passes both ways, listens for the multicast probe. Then
 * heartbeats, until the job ends or is ended. PROTOCOL.md sections 5 and 11. The caller
 * owns the TCP connection and the sockets. One thread; nothing blocks.
 */
#ifndef CLIENT_LINK_H
#define CLIENT_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/control/message.h"
#include "client/worker/knock.h"
#include "ebpf/packet.h"
#include "ebpf/seal_words.h"

struct link_config {
	const char *job;
	const char *host; /* our name, for other people's error texts */
	uint32_t rank,
		world; /* world 0: it waits at the decider until it is a member of `job`: see link_next() */
	bool keyed; /* the connection is secured with the job's key; then datagrams are sealed */
	uint32_t payload; /* UDP payload bytes that our interface may carry */
	uint32_t rcvbuf;  /* bytes, as the kernel counts them */
	uint64_t
		silence_us; /* a silent peer is lost after this; asked for: WELCOME says what holds */
	uint64_t stall_us; /* an operation may wait for a worker this long; likewise */
	uint64_t join_us;  /* give up joining after this */
	bool multicast;    /* may results come by multicast? */
	uint32_t place;    /* of this aggregator in the workers' list, from 0 */
	/* NULL; or a link that stands, whose connection this one goes on with. It may be closed then. */
	const struct link *from;
};

enum link_state {
	LINK_JOINING, /* waiting for all workers */
	LINK_PROBING, /* WELCOME is here: sockets may be opened, KNOCKs go out */
	LINK_PROBED,  /* datagrams of `size` pass; waits for link_ready() */
	LINK_WAITING, /* READY was sent */
	LINK_RUNNING,
	LINK_FAILED,
};

enum { /* bits */
       SEND_JOIN = 1,
       SEND_READY = 2,
       SEND_ABORT = 4,
       SEND_PATH = 8,
       SEND_LEAVE = 16,
       SEND_STAY = 32,
};

/* link.c alone writes it. */
struct link {
	/* What others read of it. */
	enum link_state state;
	struct link_config config;
	struct control_message welcome; /* from LINK_PROBING on */
	struct control_message start;   /* when running */
	uint32_t size;                  /* that passes both ways, from LINK_PROBED on */
	bool drains;                    /* the aggregator has last said that it will end soon */
	uint32_t waiting;               /* how many newcomers it has last said */
	char left[CONTROL_TEXT_BYTES];  /* a line: a worker has left the job; "": none has */
	char late[CONTROL_TEXT_BYTES];  /* whom the job waits for; "": nobody, or another is told */
	char error[CONTROL_TEXT_BYTES]; /* why it failed: one line for people */
	char error_code[CONTROL_NAME_BYTES]; /* likewise: a code for programs (section 5.4) */

	/* Its own. */
	char job[CONTROL_JOB_BYTES];
	char host[CONTROL_NAME_BYTES];
	struct control_message failed, next;
	struct control_message next_failed; /* FAILED after NEXT: it is the next membership's */
	bool closed;                        /* the connection has ended */
	bool sealed;                        /* there is a key, and WELCOME has come */
	struct seal_stretch stretch;
	struct seal_key own_key, group_key;

	uint32_t send;                      /* lines that wait to be sent: none is needed twice */
	struct control_message stay, abort; /* if kind is not 0 */
	struct control_message ping;        /* the next heartbeat */
	bool retried;
	bool carried;        /* the connection is another link's of before, see link_carry() */
	uint64_t silence_us; /* that holds */
	uint64_t opened_us, heard_us, ping_due_us, ticked_us;

	struct knock knock; /* while probing */
	uint32_t knocks;    /* that have gone out */
	bool multicast_seen;
	uint32_t ready; /* that READY says */

	struct path path; /* when running */
	/* What KNOCKEDs have asked for: that our KNOCKs show that we hear what is sent to their address. */
	uint64_t proofs[CONTROL_CHANNELS_MAX];
	struct path_verdict verdict;
	uint64_t verdict_due_us; /* told of it, the aggregator must have ended the job by then */
};

int link_open(const struct link_config *config, uint64_t now_us, struct link **out); /* -ENOMEM */
void link_close(struct link *link);

/* What a link that is not running yet waits for: the rest of a sentence. */
const char *link_awaits(const struct link *link);

/* WELCOME, by which sockets are opened; NULL: it is not here yet, or has been followed. */
const struct control_message *link_welcome(const struct link *link);

/* Does its connection stand, also after the membership's end, so that we may say STAY? */
bool link_stands(const struct link *link);
/* Has it ended, or become silent, and the aggregator has not said that the job has ended? */
bool link_lost(const struct link *link);
/* Has the aggregator ended the job for good? */
bool link_ended(const struct link *link);

/*
 * With world 0: we want to be in the next membership, and say STAY, after each JOIN or at once by a connection that goes
 * on. As the decider then says: NEXT; NULL: it has not. See struct control_message.
 */
void link_stay(struct link *link, const struct control_message *stay);
const struct control_message *link_next(const struct link *link);

/* Use datagrams of so many bytes: the least size of all links. */
void link_ready(struct link *link, uint32_t payload);

/* In. Silence is counted from link_connected() on. */
void link_connected(struct link *link, uint64_t now_us);
void link_line(struct link *link, const char *line, uint64_t now_us);
/*
 * Where there is a key: the connection is secured, before the first line, or goes on, and seals what we send
 * so; a line has come without the aggregator's having tried; or it has failed.
 */
void link_secured(struct link *link, const struct seal_key *own);
void link_plain(struct link *link, const char *line);
void link_refused(struct link *link);
void link_gone(struct link *link, const char *reason); /* the TCP connection ended */

/*
 * link_again - instead of link_gone(): the connection ended before all had joined, perhaps because the aggregator had
 * no room for it, or with world 0 was restarted. True, once, or with world 0 as often as it takes until NEXT has come:
 * make another; the link is as it was when it was opened.
 */
bool link_again(struct link *link);
void link_packet(struct link *link, const struct packet *packet, uint32_t bytes, uint64_t now_us);

/* Which of its channels has this number? False: none. */
bool link_channel(const struct link *link, uint16_t number, uint32_t *index);

/*
 * PROTOCOL.md section 2.4: seals, where there is a key; without one nothing happens. `edge`: a
 * 64-bit number near the packet's. link_unseal() puts the token into a packet that is right, and
 * another into one that is not.
 */
void link_seal(const struct link *link, struct packet_out *packet, uint64_t edge);
void link_unseal(const struct link *link, const void *data, uint32_t bytes, uint64_t edge,
                 struct packet *packet);

void link_no_multicast(struct link *link); /* the group's socket cannot be opened */

/* For heartbeats: how many operations are under way, and the oldest one's tag. */
void link_doing(struct link *link, uint32_t open, uint64_t tag);
bool link_pings(const struct link *link, uint64_t now_us);          /* is one due? Then: */
void link_sees(struct link *link, const struct control_seen *seen); /* how its path does */
void link_says(struct link *link, const char *text);                /* its program, for people */

/*
 * Since when operations on its channels have waited without progress (UINT64_MAX: none does). While
 * they wait the link knocks again. When nothing answers, it tells the aggregator and ends the job.
 */
void link_waits(struct link *link, uint64_t since_us, uint64_t now_us);

/* Is its path being checked, or found dead? Then that will say why nothing passes. */
bool link_checks(const struct link *link);

/* Out: the next line to send, malloc'ed, the caller frees it; the next KNOCK. */
char *link_take_line(struct link *link, uint64_t now_us);
bool link_pull(struct link *link, uint64_t now_us, struct packet_out *out);
uint64_t link_deadline(const struct link *link);
uint64_t link_deadline_lines(const struct link *link); /* the same where nobody pulls any more */
void link_tick(struct link *link, uint64_t now_us);    /* at the deadline: notices silence */

/* Ways to end; both only queue a line. */
void link_leave(struct link *link);
void link_abort(struct link *link, const char *code, const char *text);

#endif /* CLIENT_LINK_H */
