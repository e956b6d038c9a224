/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * jobs.h - admission of workers, their membership in jobs, and how a job ends
 *
 * The control plane as a machine without I/O: lines and time go in, lines and orders to the data
 * plane come out through struct jobs_ports. It owns the channels of every job. PROTOCOL.md,
 * sections 5 and 11. Only one thread may call it; no call blocks.
 */
#ifndef AGGREGATOR_JOBS_H
#define AGGREGATOR_JOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/channel/channel.h"
#include "bitmap/control/log_field.h"
#include "bitmap/control/message.h"
#include "bitmap/net/net.h"
#include "ebpf/seal_words.h"

#define JOBS_MAX 1024
#define JOBS_THREADS_MAX CONTROL_CHANNELS_MAX

struct jobs;
struct jobs_peer; /* one control connection */

struct jobs_config {
	uint32_t keys;         /* Different keys in use; 0: anyone may join. */
	const char *software;  /* What HELLO says. */
	uint32_t threads;      /* Data threads; a job has a channel on each. */
	uint32_t peers_max;    /* Connections at the same time. */
	uint32_t jobs_max;     /* Jobs at the same time, 1 .. JOBS_MAX. */
	uint32_t workers_max;  /* Workers of a job. */
	size_t job_bytes_max;  /* Memory for the slots and tables of one job. */
	size_t bytes_max;      /* Memory for those of all jobs. */
	uint32_t payload_max;  /* Bytes of UDP payload in the largest datagram. */
	uint32_t window_bytes; /* Bytes that a job may have in flight on each channel. */
	uint32_t rcvbuf_bytes; /* Receive buffer of a data thread's socket. */
	uint32_t op_slots, segments_ahead;
	uint64_t join_us;            /* How long the first worker of a job waits for the last. */
	uint64_t epoch_us;           /* About the time since 1970 at `now_us` 0. */
	uint64_t hello_us;           /* How long a connection may stay without joining. */
	struct net_ip group_nets[2]; /* IPv4, IPv6; gets 16 random bits. None: no multicast. */
	uint16_t group_port;
	struct net_addr data; /* For datagrams; none: the address that each connected to. */
	const struct bitmap_engine *engine;
	/*
	 * Jobs have a parent, which forms, starts and ends them, for the workers of all its sites. This aggregator has
	 * some of the workers, and for each of them a link to the parent: see jobs_ports.up.
	 */
	bool sited;
	const char *site, *parent; /* for people: the name of this site, and its parent's address */
};

struct seals; /* ebpf/seal.h */

/* A channel as the data plane needs it. */
struct jobs_channel {
	uint16_t id; /* The low byte is the thread. */
	uint16_t worker_count;
	uint64_t group_token;
	struct seal_key secret; /* For knock_proof(). */
	const uint64_t *tokens; /* [worker_count]; owned by jobs until detach(). */
	/* NULL if datagrams are not sealed; owned by jobs until detach(). */
	const struct seals *seals;
	struct net_ip group;      /* None if there is no multicast. */
	struct net_ip group_from; /* The local address that most workers are connected to. */
	uint16_t group_port;
};

/* A problem of a worker's path. */
struct jobs_trouble {
	enum jobs_trouble_kind {
		JOBS_UNSENT, /* Datagrams to it cannot be sent, and the channel makes no progress. */
		JOBS_MERGED, /* Its datagrams arrive merged, and are lost. */
		JOBS_SLOW,   /* winnowd adds PUSHes that the kernel might have added. */
	} kind;
	uint16_t rank;   /* The first such worker, or WIRE_EVERYONE for the group. */
	uint16_t more;   /* How many more workers have the same trouble. */
	int error;       /* JOBS_UNSENT: errno. */
	uint64_t count;  /* Datagrams to or from it; JOBS_SLOW: PUSHes added by the kernel. */
	uint64_t of;     /* JOBS_MERGED: whole datagrams since then; JOBS_SLOW: all PUSHes. */
	uint64_t for_us; /* Time since the first of them, or since the channel last progressed. */
	uint64_t stands_us; /* The part of that time in which the channel made no progress. */
};

/* How long ago a channel received a worker's KNOCKs; UINT64_MAX: never. */
struct jobs_heard {
	uint64_t any_us;   /* KNOCKs of any size. */
	uint64_t whole_us; /* KNOCKs as large as the job's datagrams. */
};

/* How a worker's link to the parent ends. */
enum jobs_up_end {
	JOBS_UP_CUT,    /* At once: the worker is lost, or the parent has ended the job. */
	JOBS_UP_LEAVE,  /* The worker has left. */
	JOBS_UP_ABORT,  /* The job has failed here. */
	JOBS_UP_LINGER, /* The job has failed here, which another link tells. */
};

struct jobs_ports {
	void *context; /* For all other functions. */
	void *kernel;  /* For share() and unshare(). */
	void *data;    /* For start() and heard(). */
	/* Queues a line for a peer. It cannot fail: a dead peer shows in jobs_gone(). */
	void (*send)(void *context, struct jobs_peer *peer, const char *line);
	/* Closes the connection once the queued lines are sent. The peer is not used again. */
	void (*close)(void *context, struct jobs_peer *peer);
	/* From now on KNOCKs for `channel` are answered. Returns 0 or -ENOMEM. */
	int (*attach)(void *context, const struct jobs_channel *channel);
	/*
	 * Gives a channel memory to share with the kernel (config->fast, fast_slots) before it
	 * opens, config->window slots, until unshare() or detach(). Returns NULL, or why there is
	 * none.
	 */
	const char *(*share)(void *kernel, const struct jobs_channel *channel,
	                     struct channel_config *config);
	/* The channel will not use the memory that share() gave it, if any. */
	void (*unshare)(void *kernel, uint16_t id);
	/*
	 * From now on the channel gets packets of all kinds. jobs owns it, and the data plane uses
	 * it until detach(). attach(), start() and detach() return when the data thread has done
	 * it.
	 */
	void (*start)(void *data, uint16_t id, struct channel *channel, const bool multicast[]);
	void (*detach)(void *context, uint16_t id);
	/* Says when a worker's KNOCKs last came. */
	void (*heard)(void *data, uint16_t id, uint32_t rank, struct jobs_heard *out);
	/*
	 * Only if jobs have a parent. up_join() joins the parent's job in a worker's name, and returns 0, -ENOMEM, or
	 * -ENOENT or -EAGAIN: the job has no key now. Then jobs_up_..() say what the parent says, but never before these
	 * return.
	 */
	void *up;
	int (*up_join)(void *up, struct jobs_peer *peer, const struct control_message *join);
	void (*up_ready)(void *up, const struct jobs_peer *peer, uint32_t payload);
	/* The channel of a thread speaks to the parent in this worker's name from now on. 0 or -ENOMEM. */
	int (*up_relay)(void *up, const struct jobs_peer *peer, uint16_t id,
	                struct channel *channel);
	/* Writes whom the parent waits for, as it has last said, or "". */
	void (*up_late)(void *up, const struct jobs_peer *peer, char text[CONTROL_TEXT_BYTES]);
	/* The peer ends. JOBS_UP_ABORT tells the parent why; `code` and `text` are only for that. */
	void (*up_end)(void *up, const struct jobs_peer *peer, enum jobs_up_end how,
	               const char *code, const char *text);
	/* The key of the datagrams that this secured peer sends in a membership. 0 or -EPROTO. */
	int (*seal_key)(struct jobs_peer *peer, const char *membership, struct seal_key *out);
	void (*random)(void *context, void *out, size_t bytes);
	/* Logs an event. level is "info" or "warn"; fields and text may be NULL. */
	void (*log)(void *context, const char *level, const char *event,
	            const struct log_field fields[], const char *text);
};

/* In JOB_ENDING the members that are left say whether they continue. */
enum job_state { JOB_FREE, JOB_FORMING, JOB_PROBING, JOB_RUNNING, JOB_ENDING };

static inline const char *job_state_name(enum job_state state)
{
	static const char *const names[] = {"free", "forming", "probing", "running", "ending"};

	return names[state];
}

/* Snapshots for status and metrics. */
struct jobs_view {
	char name[CONTROL_JOB_BYTES];
	enum job_state state;
	uint32_t world, joined;
	uint32_t payload, window;
	bool multicast; /* At least one worker gets results through the group. */
	bool fast;      /* The kernel adds its int32 frames. */
	size_t bytes;
	uint32_t channel_count;
	uint16_t channel_ids[JOBS_THREADS_MAX];
	uint64_t group_token; /* Only its channels have this token. */
	uint64_t state_us;    /* How long it has been in this state. */
	uint64_t silence_us, stall_us;
	uint32_t newcomers;               /* Newcomers that wait for admission by its members. */
	char trouble[CONTROL_TEXT_BYTES]; /* One line about a path with a problem, or "". */
};

/* A worker of a job. Unknown fields are "" or 0. */
struct jobs_worker {
	/*
	 * "missing", "joined", "ready" (its packets arrive), "left"; in a job that ends "stays", "awaited"; at a site
	 * "elsewhere", if it does not join here.
	 */
	const char *state;
	char host[CONTROL_NAME_BYTES], address[NET_TEXT_BYTES];
	bool multicast;
	uint64_t silent_us;              /* How long its connection has been silent. */
	struct control_seen seen;        /* Its latest report about its path. */
	struct control_seen seen_before; /* The report before that. */
	uint64_t seen_over_us;           /* Time between the two; 0 if there is only one. */
	char says[CONTROL_NAME_BYTES];   /* What its program says for people. */
	char site[CONTROL_NAME_BYTES];   /* The site that it joins through, or "". */
};

/* The last job that failed. */
struct jobs_failure {
	char job[CONTROL_JOB_BYTES], code[CONTROL_NAME_BYTES], text[CONTROL_TEXT_BYTES];
	uint64_t age_us;
};

/* Reasons to refuse a worker, which receives the same code. */
#define JOBS_REFUSALS 12
extern const char *const jobs_refusals[JOBS_REFUSALS];

struct jobs_totals {
	size_t bytes_max; /* The limit for the memory of all jobs. */
	uint64_t jobs_started, jobs_finished, jobs_failed;
	uint64_t jobs_continued; /* Those that the remaining members have continued. */
	uint64_t joins_refused;
	uint64_t refused[JOBS_REFUSALS]; /* joins_refused by reason. */
	size_t bytes;                    /* Memory reserved now. */
	uint32_t jobs;                   /* Jobs now. */
	uint32_t peers;                  /* Connections now. */
	bool draining;
	bool keys_fresh; /* The last reload has read the keys. */
};

/* A copy of everything for another thread, in one allocation, which the receiver frees. */
struct jobs_copy {
	struct jobs_totals totals;
	bool failed;                 /* Whether any job has failed. */
	struct jobs_failure failure; /* The last failure. */
	uint32_t job_count;
	struct jobs_copied {
		struct jobs_view view;
		struct jobs_worker *workers; /* [view.world] */
	} jobs[];
};

int jobs_open(const struct jobs_config *config, const struct jobs_ports *ports, struct jobs **out);
void jobs_close(struct jobs *jobs); /* after jobs_end() */

/*
 * jobs_connected - takes a new control connection from `from` to our address `local`. If there are
 * then more than peers_max, the oldest one that has not joined, of the address with the most
 * connections, is told so with code "connections" and closed. Returns NULL if that is the new one.
 * `handle` belongs to the caller: see jobs_peer_handle().
 */
struct jobs_peer *jobs_connected(struct jobs *jobs, const struct net_addr *from,
                                 const struct net_ip *local, void *handle, uint64_t now_us);
void *jobs_peer_handle(const struct jobs_peer *peer);

/*
 * If there are keys, jobs_connected() sends nothing yet, and the caller reports the handshake:
 *
 * jobs_awaits_key - it still waits for a key that is being made, so hello_us begins again.
 * jobs_secured - the peer has proved that it knows the key of this name; `owner` stands for the key.
 * jobs_refuse - it has not. It is told why, if it can be, and closed.
 */
void jobs_awaits_key(struct jobs_peer *peer, uint64_t now_us);
void jobs_secured(struct jobs *jobs, struct jobs_peer *peer, const char *name, uint64_t owner);
void jobs_refuse(struct jobs *jobs, struct jobs_peer *peer, const char *code, const char *text);

/* jobs_peer_owner - the owner that pays for it: the key that it has proved, or else its address. */
uint64_t jobs_peer_owner(const struct jobs_peer *peer);

/* jobs_crowd_out - closes a connection to make room. Returns false if all have joined. */
bool jobs_crowd_out(struct jobs *jobs);

/*
 * jobs_turn_away - counts a connection that is closed as soon as it is accepted because its host
 * connects too often. Returns the line to tell it, in allocated memory, or NULL if memory is short.
 */
char *jobs_turn_away(struct jobs *jobs);

/* jobs_line - takes a line from a peer. */
void jobs_line(struct jobs *jobs, struct jobs_peer *peer, const char *line, uint64_t now_us);

/*
 * jobs_garbage - the peer sent something that is not a line, and is told why.
 * jobs_gone - its connection ended.
 */
void jobs_garbage(struct jobs *jobs, struct jobs_peer *peer, const char *why);
void jobs_gone(struct jobs *jobs, struct jobs_peer *peer, const char *reason);

/* jobs_stalled - a channel has an operation that has waited too long. Unknown ids are ignored. */
void jobs_stalled(struct jobs *jobs, uint16_t channel_id, const struct channel_stall *stall);

/*
 * jobs_trouble - the same for trouble with a worker's path, reported repeatedly while it lasts. It
 * ends the job, at once if it cannot pass by itself, otherwise after the silence time. Until then
 * jobs_view() shows it.
 */
void jobs_trouble(struct jobs *jobs, uint16_t channel_id, const struct jobs_trouble *trouble);

/*
 * What a worker's link to the parent says: WELCOME, START, FAILED with this text and blamed rank, LEFT.
 */
void jobs_up_welcome(struct jobs *jobs, struct jobs_peer *peer,
                     const struct control_message *welcome, uint64_t now_us);
void jobs_up_start(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *start);
void jobs_up_failed(struct jobs *jobs, struct jobs_peer *peer, uint32_t rank, const char *code,
                    const char *text);
void jobs_up_left(struct jobs *jobs, struct jobs_peer *peer, const char *text);

/* What a link needs to know of its worker. */
struct jobs_doing {
	uint32_t open;
	uint64_t tag;
	const char *says;
};
struct jobs_doing jobs_peer_doing(const struct jobs_peer *peer);

/* The parent refuses an operation of the job that has this channel. */
void jobs_refused(struct jobs *jobs, uint16_t channel_id, const char *text);

/* jobs_tick - call it every 50 to 500 ms for time-outs and heartbeats. */
void jobs_tick(struct jobs *jobs, uint64_t now_us);

/* jobs_drain - refuses new jobs, and tells running ones, so that members can go elsewhere. */
void jobs_drain(struct jobs *jobs);

/* jobs_keys_set - the number of different keys; `fresh` unless they could not be read anew. */
void jobs_keys_set(struct jobs *jobs, uint32_t keys, bool fresh);

/* jobs_end - ends every job with this reason. */
void jobs_end(struct jobs *jobs, const char *text);

void jobs_totals(const struct jobs *jobs, struct jobs_totals *out);

/* By place, 0 .. JOBS_MAX - 1, and rank, 0 .. world - 1. Ages are accurate to about 50 ms. */
bool jobs_view(const struct jobs *jobs, uint32_t index, struct jobs_view *out);
void jobs_worker(const struct jobs *jobs, uint32_t index, uint32_t rank, struct jobs_worker *out);
bool jobs_last_failure(const struct jobs *jobs, struct jobs_failure *out); /* false if none */

/* jobs_copy - takes well below a millisecond for a thousand workers. NULL if memory is short. */
struct jobs_copy *jobs_copy(const struct jobs *jobs);

#endif /* AGGREGATOR_JOBS_H */
