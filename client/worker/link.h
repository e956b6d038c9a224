/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * link.h - a worker's side of one aggregator's control connection, as a machine without I/O
 *
 * Between HELLO and START it joins, knocks on each channel to show its address and to find the largest
 * datagram that passes in both directions, and listens for the multicast probe. Then it sends
 * heartbeats until the job ends. PROTOCOL.md sections 5 and 11. The caller owns the TCP connection
 * and the sockets. One thread; nothing blocks.
 *
 * A link "at the door" (world 0) waits at the decider until it becomes a member of `job` (MEMBERS.md).
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
	const char *host; /* Our name, for the error texts of others. */
	uint32_t rank;
	uint32_t world; /* 0 if it waits at the door: see link_next(). */
	bool keyed; /* The job has a key: TLS secures the connection, and datagrams are sealed. */
	uint32_t payload;    /* The UDP payload that our interface may carry. */
	uint32_t rcvbuf;     /* Bytes of the receive buffer, as the kernel counts them. */
	uint64_t silence_us; /* The silence time to ask for. WELCOME has the one that applies. */
	uint64_t stall_us;   /* The stall time to ask for. WELCOME has the one that applies. */
	uint64_t join_us;    /* How long to try to join. */
	bool multicast;      /* Results may come by multicast. */
	uint32_t place;      /* The place of this aggregator in the workers' list, from 0. */
	/* Of a site that joins for a worker: see struct control_message. NULL and 0: none. */
	const char *site;
	uint64_t via;
	/* A link whose connection this one takes over, or NULL. It may be closed after link_open(). */
	const struct link *from;
};

/* What a worker without a key sends at once. An aggregator that has keys waits for it, and can say why it refuses. */
#define LINK_FIRST_LINE "{\"type\":\"ping\"}\n"

enum link_state {
	LINK_JOINING, /* It waits for all workers. */
	LINK_PROBING, /* WELCOME has come: sockets may be opened, and KNOCKs go out. */
	LINK_PROBED,  /* Datagrams of `size` pass. It waits for link_ready(). */
	LINK_WAITING, /* It has sent READY and waits for START. */
	LINK_RUNNING,
	LINK_FAILED,
};

enum { /* Bits of link.send. */
       SEND_JOIN = 1,
       SEND_READY = 2,
       SEND_ABORT = 4,
       SEND_PATH = 8,
       SEND_LEAVE = 16,
       SEND_STAY = 32,
};

/* Only link.c writes it. */
struct link {
	/* Read by others. */
	enum link_state state;
	struct link_config config;
	struct control_message welcome; /* Valid from LINK_PROBING on. */
	struct control_message start;   /* Valid when running. */
	uint32_t size;                  /* The size that passes, from LINK_PROBED on. */
	bool drains;                    /* The aggregator drains, as far as we know. */
	uint32_t waiting;               /* The newcomers that the aggregator last reported. */
	char left[CONTROL_TEXT_BYTES];  /* A line about a worker that has left the job, or "". */
	char late[CONTROL_TEXT_BYTES];  /* A line about workers that the job waits for, or "". */
	char error[CONTROL_TEXT_BYTES]; /* The reason of a failure, as a line for people. */
	char error_code[CONTROL_NAME_BYTES]; /* The same as a code for programs (section 5.4). */

	/* Private. */
	char job[CONTROL_JOB_BYTES];
	char host[CONTROL_NAME_BYTES];
	struct control_message failed, next;
	struct control_message next_failed; /* A FAILED after NEXT concerns the next membership. */
	bool closed;                        /* The connection has ended. */
	bool sealed;                        /* There is a key, and WELCOME has come. */
	struct seal_stretch stretch;
	struct seal_key own_key, group_key;

	uint32_t send;                      /* Lines that wait to be sent, as bits. */
	struct control_message stay, abort; /* Valid if kind is not 0. */
	struct control_message ping;        /* The next heartbeat. */
	bool retried;                       /* link_again() has allowed another connection. */
	bool carried;        /* The connection came from another link: link_carry(). */
	uint64_t silence_us; /* The silence time that applies. */
	uint64_t opened_us, heard_us, ping_due_us, ticked_us;

	struct knock knock; /* Used while probing. */
	uint32_t knocks;    /* The number of KNOCKs sent. */
	bool multicast_seen;
	uint32_t ready; /* The size in READY. */

	struct path path; /* Used when running. */
	/* The number in the last KNOCKED. Our KNOCKs repeat it to prove that we hear the answers. */
	uint64_t proofs[CONTROL_CHANNELS_MAX];
	struct path_verdict verdict;
	uint64_t verdict_due_us; /* When to give up if the aggregator does not act on PATH. */
};

int link_open(const struct link_config *config, uint64_t now_us,
              struct link **out); /* Or -ENOMEM. */
void link_close(struct link *link);

/* What a link that is not running waits for, as the end of a sentence. */
const char *link_awaits(const struct link *link);

/* Returns WELCOME while probing, when sockets are opened; otherwise NULL. */
const struct control_message *link_welcome(const struct link *link);

/* The connection is open and can carry a STAY, perhaps after the end of the membership. */
bool link_stands(const struct link *link);
/* The connection has ended or is silent, and the aggregator has not told that the job has ended. */
bool link_lost(const struct link *link);
/* The aggregator has ended the job for good. */
bool link_ended(const struct link *link);

/*
 * At the door. link_stay() asks to be in the next membership: STAY goes out after each JOIN, or at once over a
 * connection that was taken over. link_next() returns the decider's NEXT, or NULL if none has come. See struct
 * control_message.
 */
void link_stay(struct link *link, const struct control_message *stay);
const struct control_message *link_next(const struct link *link);

/* Sends READY with the size of datagrams to use: the least size of all links. */
void link_ready(struct link *link, uint32_t payload);

/* Input: the connection is open, and a line. Silence counts from link_connected() on. */
void link_connected(struct link *link, uint64_t now_us);
void link_line(struct link *link, const char *line, uint64_t now_us);
/*
 * Input with a key: the connection is secured, before the first line, and `own` seals what we send; a line has come
 * from an aggregator that does not use TLS; or the handshake has failed.
 */
void link_secured(struct link *link, const struct seal_key *own);
void link_plain(struct link *link, const char *line);
void link_refused(struct link *link);
void link_gone(struct link *link, const char *reason); /* The TCP connection has ended. */

/*
 * Call this instead of link_gone() if the connection ended before all had joined, perhaps because the aggregator had no
 * room for it, or was restarted. Returns true if the caller should connect again; the link is then as new. It returns
 * true once, but at the door each time until NEXT has come.
 */
bool link_again(struct link *link);
void link_packet(struct link *link, const struct packet *packet, uint32_t bytes, uint64_t now_us);

/* Finds the channel with this number. Returns false if there is none. */
bool link_channel(const struct link *link, uint16_t number, uint32_t *index);

/*
 * Seals (PROTOCOL.md section 2.4). Without a key these do nothing. `edge` is a 64-bit number near the packet's.
 * link_unseal() puts the right token into a packet whose seal is right, and a wrong one into any other.
 */
void link_seal(const struct link *link, struct packet_out *packet, uint64_t edge);
void link_unseal(const struct link *link, const void *data, uint32_t bytes, uint64_t edge,
                 struct packet *packet);

void link_no_multicast(struct link *link); /* The group's socket cannot be opened. */

/* Sets the number of operations under way and the oldest one's tag, for heartbeats. */
void link_doing(struct link *link, uint32_t open, uint64_t tag);
/* Returns whether a heartbeat is due. Then link_sees() must set the state of the path. */
bool link_pings(const struct link *link, uint64_t now_us);
void link_sees(struct link *link, const struct control_seen *seen);
/* Sets a text of the program for people, for heartbeats. */
void link_says(struct link *link, const char *text);

/*
 * Tells since when operations on its channels have waited without progress, or UINT64_MAX. While they wait, the link
 * knocks again. If nothing answers, it tells the aggregator and ends the job.
 */
void link_waits(struct link *link, uint64_t since_us, uint64_t now_us);

/* Returns whether the path is being checked or was found dead, which will explain why nothing passes. */
bool link_checks(const struct link *link);

/* Output: the next line to send, which the caller frees, and the next KNOCK. */
char *link_take_line(struct link *link, uint64_t now_us);
bool link_pull(struct link *link, uint64_t now_us, struct packet_out *out);
uint64_t link_deadline(const struct link *link);
uint64_t link_deadline_lines(const struct link *link); /* The same without KNOCKs. */
void link_tick(struct link *link, uint64_t now_us);    /* Call at the deadline. Notices silence. */

/* Both ways to end only queue a line. */
void link_leave(struct link *link);
void link_abort(struct link *link, const char *code, const char *text);

#endif /* CLIENT_LINK_H */
