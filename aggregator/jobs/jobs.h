/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * jobs.h - who may join, who has joined, and how a job ends
 *
 * The control plane as a machine without I/O: lines and time go in, lines and orders to
 * the data plane come out through struct jobs_ports. It owns the channels of every job.
 * PROTOCOL.md sections 5 and 11. One thread; nothing blocks.
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
	uint32_t keys;         /* So many different ones there are; 0: anyone may join. */
	const char *software;  /* HELLO says it. */
	uint32_t threads;      /* A job gets a channel on each data thread. */
	uint32_t peers_max;    /* So many connections may be here. */
	uint32_t jobs_max;     /* So many jobs may be here, 1 .. JOBS_MAX. */
	uint32_t workers_max;  /* A job may have so many workers. */
	size_t job_bytes_max;  /* Slots and tables of one job may take so much. */
	size_t bytes_max;      /* Those of all jobs may take so much. */
	uint32_t payload_max;  /* No datagram is larger, in bytes of UDP payload. */
	uint32_t window_bytes; /* A job may have so much under way on each channel. */
	uint32_t rcvbuf_bytes; /* The socket of one data thread holds so much. */
	uint32_t op_slots, segments_ahead;
	uint64_t join_us;            /* The first worker of a job waits so long for the last. */
	uint64_t epoch_us;           /* From `now_us` to the time since 1970, roughly. */
	uint64_t hello_us;           /* A connection may stay so long without joining. */
	struct net_ip group_nets[2]; /* IPv4, IPv6; 16 random bits are added; none: no multicast. */
	uint16_t group_port;
	struct net_addr data; /* Workers send datagrams here; none: to where they have connected. */
	const struct bitmap_engine *engine;
};

struct seals; /* ebpf/seal.h */

/* A channel as the data plane needs it. */
struct jobs_channel {
	uint16_t id; /* Its low byte is the thread. */
	uint16_t worker_count;
	uint64_t group_token;
	struct seal_key secret; /* knock_proof() takes it. */
	const uint64_t *tokens; /* [worker_count]; jobs owns them until detach(). */
	/* NULL: datagrams are not sealed; jobs owns them until detach(). */
	const struct seals *seals;
	struct net_ip group;      /* None: there is no multicast. */
	struct net_ip group_from; /* Most workers are connected to this address of ours. */
	uint16_t group_port;
};

/* What is wrong with a worker's path. */
struct jobs_trouble {
	enum jobs_trouble_kind {
		JOBS_UNSENT, /* Datagrams to it do not get out, and the channel gets no further. */
		JOBS_MERGED, /* Its datagrams come several in one, and are lost. */
		JOBS_SLOW, /* PUSHes of all workers that the kernel might have added come to us. */
	} kind;
	uint16_t rank;      /* The first such worker has it; WIRE_EVERYONE: it is the group. */
	uint16_t more;      /* So many more workers have the same. */
	int error;          /* JOBS_UNSENT: this is errno. */
	uint64_t count;     /* So many datagrams, to or from it; JOBS_SLOW: added by the kernel. */
	uint64_t of;        /* JOBS_MERGED: whole ones of all meanwhile; JOBS_SLOW: PUSHes. */
	uint64_t for_us;    /* So long since the first of them, or since the channel got further. */
	uint64_t stands_us; /* For so much of that the channel got no further. */
};

/* How long ago a channel heard a worker's KNOCKs; UINT64_MAX: never. */
struct jobs_heard {
	uint64_t any_us;   /* It may be of any size. */
	uint64_t whole_us; /* It is as large as the job's datagrams. */
};

struct jobs_ports {
	void *context; /* All others get it. */
	void *kernel;  /* share() and unshare() get it. */
	void *data;    /* start() and heard() get it. */
	/* Queue bytes for a peer. This never fails: a dead peer shows in jobs_gone(). */
	void (*send)(void *context, struct jobs_peer *peer, const char *line);
	/* Close after what was sent has gone; the peer is not used again. */
	void (*close)(void *context, struct jobs_peer *peer);
	/* From now on KNOCKs for `channel` are answered. -ENOMEM. */
	int (*attach)(void *context, const struct jobs_channel *channel);
	/*
	 * Give the channel-to-be memory to share with the kernel (config->fast, fast_slots), as many
	 * slots as config->window; unshare() or detach() takes it back. NULL, or why there is none.
	 */
	const char *(*share)(void *kernel, const struct jobs_channel *channel,
	                     struct channel_config *config);
	/* The channel will not use what share() returned, if anything. */
	void (*unshare)(void *kernel, uint16_t id);
	/*
	 * From now on the channel gets packets of all kinds; jobs owns it, the data plane uses it
	 * until detach(). attach(), start() and detach() return only when the data thread has done it.
	 */
	void (*start)(void *data, uint16_t id, struct channel *channel, const bool multicast[]);
	void (*detach)(void *context, uint16_t id);
	/* When did a worker's KNOCKs last come? */
	void (*heard)(void *data, uint16_t id, uint32_t rank, struct jobs_heard *out);
	/* The key of what this peer, whose connection is secured, sends in a membership. -EPROTO. */
	int (*seal_key)(struct jobs_peer *peer, const char *membership, struct seal_key *out);
	void (*random)(void *context, void *out, size_t bytes);
	/* One event: level is "info" or "warn"; fields and text may be NULL. */
	void (*log)(void *context, const char *level, const char *event,
	            const struct log_field fields[], const char *text);
};

/* JOB_ENDING: it is asked who is left. */
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
	bool multicast; /* At least one worker gets results by the group. */
	bool fast;      /* The kernel adds its int32 frames. */
	size_t bytes;
	uint32_t channel_count;
	uint16_t channel_ids[JOBS_THREADS_MAX];
	uint64_t group_token; /* Its channels have it, and no other job's. */
	uint64_t state_us;    /* It has been in this state for so long. */
	uint64_t silence_us, stall_us;
	uint32_t newcomers;               /* So many wait until its members admit them. */
	char trouble[CONTROL_TEXT_BYTES]; /* "", or one line about a path with a problem. */
};

/* One worker of a job; what it does not know yet is "" or 0. */
struct jobs_worker {
	/* "missing", "joined", "ready" (its packets arrive), "left"; of a job that ends "stays", "awaited". */
	const char *state;
	char host[CONTROL_NAME_BYTES], address[NET_TEXT_BYTES];
	bool multicast;
	uint64_t silent_us;              /* Its connection has said nothing for so long. */
	struct control_seen seen;        /* It has said this last of its path. */
	struct control_seen seen_before; /* It had said this the time before. */
	uint64_t seen_over_us;         /* So much time lies between; 0: it has not said it twice. */
	char says[CONTROL_NAME_BYTES]; /* Its program says this, for people. */
};

/* The last job that failed. */
struct jobs_failure {
	char job[CONTROL_JOB_BYTES], code[CONTROL_NAME_BYTES], text[CONTROL_TEXT_BYTES];
	uint64_t age_us;
};

/* Reasons to refuse a worker: the worker receives the same code. */
#define JOBS_REFUSALS 12
extern const char *const jobs_refusals[JOBS_REFUSALS];

struct jobs_totals {
	size_t bytes_max; /* All jobs together may take so much. */
	uint64_t jobs_started, jobs_finished, jobs_failed;
	uint64_t jobs_continued; /* Members that are left have continued so many of these. */
	uint64_t joins_refused;
	uint64_t refused[JOBS_REFUSALS]; /* The same refusals by reason. */
	size_t bytes;                    /* So much is reserved now. */
	uint32_t jobs;                   /* So many are here now. */
	uint32_t peers;                  /* So many are connected now. */
	bool draining;
	bool keys_fresh; /* The last reload has read the keys. */
};

/* All of it, for another thread: one piece of memory, which the receiver frees. */
struct jobs_copy {
	struct jobs_totals totals;
	bool failed;                 /* Some job has failed. */
	struct jobs_failure failure; /* It is the last one. */
	uint32_t job_count;
	struct jobs_copied {
		struct jobs_view view;
		struct jobs_worker *workers; /* [view.world] */
	} jobs[];
};

int jobs_open(const struct jobs_config *config, const struct jobs_ports *ports, struct jobs **out);
void jobs_close(struct jobs *jobs); /* after jobs_end() */

/*
 * jobs_connected - a new control connection from `from` to our address `local`. When there are
 * more than peers_max, one that has not joined gives way: the oldest of the address with the most
 * connections. It is told so, with code "connections", and closed. NULL: the new connection was the
 * one. `handle` is the caller's: see jobs_peer_handle().
 */
struct jobs_peer *jobs_connected(struct jobs *jobs, const struct net_addr *from,
                                 const struct net_ip *local, void *handle, uint64_t now_us);
void *jobs_peer_handle(const struct jobs_peer *peer);

/*
 * Where there are keys, jobs_connected() says nothing yet. The caller tells:
 *
 * jobs_awaits_key - the handshake still waits for a key that is being made: hello_us begins anew.
 * jobs_secured - the peer has shown that it knows the key of this job's name; `owner` stands for the key.
 * jobs_refuse - it has not, and that is why: it is told if it can be, and closed.
 */
void jobs_awaits_key(struct jobs_peer *peer, uint64_t now_us);
void jobs_secured(struct jobs *jobs, struct jobs_peer *peer, const char *name, uint64_t owner);
void jobs_refuse(struct jobs *jobs, struct jobs_peer *peer, const char *code, const char *text);

/* jobs_peer_owner - who answers for what it costs: the key that it has proved, else its address. */
uint64_t jobs_peer_owner(const struct jobs_peer *peer);

/* jobs_crowd_out - let one give way now. False: all have joined. */
bool jobs_crowd_out(struct jobs *jobs);

/*
 * jobs_turn_away - a connection is closed as soon as it is accepted, since its host connects too often: jobs counts
 * it, and returns what to tell it, in malloc'ed memory; NULL: out of memory.
 */
char *jobs_turn_away(struct jobs *jobs);

/* jobs_line - what a peer says. */
void jobs_line(struct jobs *jobs, struct jobs_peer *peer, const char *line, uint64_t now_us);

/*
 * The peer sent something that is not a line (jobs_garbage; it is told why), or its connection
 * ended (jobs_gone).
 */
void jobs_garbage(struct jobs *jobs, struct jobs_peer *peer, const char *why);
void jobs_gone(struct jobs *jobs, struct jobs_peer *peer, const char *reason);

/* A channel reports an operation that has waited too long. Unknown ids are ignored. */
void jobs_stalled(struct jobs *jobs, uint16_t channel_id, const struct channel_stall *stall);

/*
 * The same for trouble with a worker's path, reported repeatedly while it lasts. The job ends: at
 * once if the trouble cannot pass by itself, otherwise after the silence time. Until then
 * jobs_view() shows it.
 */
void jobs_trouble(struct jobs *jobs, uint16_t channel_id, const struct jobs_trouble *trouble);

/* Call every 50 to 500 ms: time-outs and heartbeats. */
void jobs_tick(struct jobs *jobs, uint64_t now_us);

/* Refuse new jobs from now on. Those that run are told, so that their members can go elsewhere. */
void jobs_drain(struct jobs *jobs);

/* So many different keys there are now; fresh: they have just been read, else they are those of before. */
void jobs_keys_set(struct jobs *jobs, uint32_t keys, bool fresh);

/* End every job with a reason. */
void jobs_end(struct jobs *jobs, const char *text);

void jobs_totals(const struct jobs *jobs, struct jobs_totals *out);

/* By place, 0 .. JOBS_MAX - 1, and rank, 0 .. world - 1. Ages are right to about 50 ms. */
bool jobs_view(const struct jobs *jobs, uint32_t index, struct jobs_view *out);
void jobs_worker(const struct jobs *jobs, uint32_t index, uint32_t rank, struct jobs_worker *out);
bool jobs_last_failure(const struct jobs *jobs, struct jobs_failure *out); /* false: none */

/* jobs_copy - takes well below a millisecond for a thousand workers. NULL: out of memory. */
struct jobs_copy *jobs_copy(const struct jobs *jobs);

#endif /* AGGREGATOR_JOBS_H */
