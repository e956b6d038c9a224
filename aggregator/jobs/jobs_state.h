/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * jobs_state.h - what the jobs*.c files share; private to them
 *
 * jobs.c        memory, connections, what comes from them, time, what is shown
 * jobs_members.c  which membership follows one that has ended
 * jobs_join.c   admission, and a job's way from the first JOIN to START
 * jobs_blame.c  jobs that get no further, and paths with which something is wrong
 * jobs_room.c   how many jobs, and how much memory, an owner may have beside the others
 * jobs_state.c  peers and jobs: telling them, giving back what they hold; doors; how jobs fail
 *
 * Each calls only what stands below it.
 */
#ifndef AGGREGATOR_JOBS_STATE_H
#define AGGREGATOR_JOBS_STATE_H

#include <sys/queue.h>

#include "aggregator/jobs/crowd.h"
#include "aggregator/jobs/jobs.h"
#include "ebpf/seal.h"

/* 5.1: "more than 1,000 lines of a worker at once, or 100 a second for long" */
#define JOBS_LINE_US 10000
#define JOBS_LINES_US 10000000 /* a thousand lines at once */

/* What a worker has said in its last STAY. */
struct jobs_stay {
	char job[CONTROL_JOB_BYTES]; /* It has last joined this membership. */
	uint32_t rank;               /* It had this rank there. */
	/* The START of this membership came to it last; "": none has. */
	char begun[CONTROL_JOB_BYTES];
	uint32_t of;      /* `begun` had so many workers. */
	uint32_t admit;   /* So many newcomers may come. */
	uint64_t without; /* It leaves these aggregators out, bits by place. */
	bool holds;       /* It has the state of the job. */
};

/* Where a member of a membership that we have named comes from, until its JOIN has come. */
struct job_seat {
	char job[CONTROL_JOB_BYTES]; /* "": it has joined, or was no member before. */
	uint32_t rank;
};

enum peer_state {
	PEER_FREE,
	PEER_STRANGER, /* It has not joined. */
	PEER_AT_DOOR,  /* It waits until the members of the job `wanted` admit it, or for those. */
	PEER_NAMED,    /* It is a member by NEXT, or STAY, and has not joined. */
	PEER_JOINED,
	PEER_READY, /* Its READY has come. */
};

struct jobs_peer {
	enum peer_state state;
	LIST_ENTRY(jobs_peer) place;     /* It is in the list of those used, or of those free. */
	TAILQ_ENTRY(jobs_peer) doorstep; /* It is in the queue of those that wait at a door. */
	char wanted[CONTROL_JOB_BYTES];
	bool gone;  /* The others continue without it: see job_fail(). */
	bool stays; /* Its STAY has come, in its job or at a door. */
	struct jobs_stay stay;
	struct job *job;     /* NULL: it is no member. */
	uint32_t rank;       /* At a door this is the rank that it had before, or 0. */
	struct net_ip local; /* Our address, of this connection. */
	void *handle;        /* The caller of jobs_connected() has given it. */
	/* It has shown that it knows the key of this name; "": none. */
	char keyed_for[CONTROL_NAME_BYTES];
	/* Everyone with that key has this number; else everyone from its address. */
	uint64_t owner;
	uint64_t since_us;  /* It is connected, or at a door, since then. */
	uint64_t heard_us;  /* Its last line counts as heard at this time. */
	uint64_t pinged_us; /* It was last sent a PING at this time. */
	struct {            /* It has said this in JOIN. */
		uint32_t payload, rcvbuf;
		uint64_t silence_us, stall_us;
	} asks;
	struct {                  /* How much it says: a line takes JOBS_LINE_US to say. */
		uint64_t at_us;   /* Its last line came at this time. */
		uint64_t left_us; /* What it had said by then would have taken so long still. */
	} talk;
	struct {                  /* Its last PING has said this. */
		uint32_t open;    /* It is in so many operations. */
		uint64_t tag;     /* The oldest of them has this tag. */
		uint64_t same_us; /* It has said the same two numbers since this time. */
		uint64_t seen_us; /* `worker.seen` came at this time. */
	} does;
	struct jobs_worker worker; /* What is shown of it, but what jobs_worker() fills in. */
};

struct job {
	enum job_state state;
	char name[CONTROL_JOB_BYTES];
	uint64_t owner; /* It is the first worker's. */
	uint32_t world;
	struct jobs_peer **members; /* [world]; NULL: that worker is not here, or has left. */
	struct job_seat *seats;     /* [world] */
	uint32_t opener;            /* The first worker to join has this rank. */
	bool named;          /* We have named it: its members are those that NEXT has told. */
	bool boundary;       /* JOB_ENDING: nothing has failed, and all want to continue. */
	uint64_t since_us;   /* It is in its state since then. */
	uint64_t silence_us; /* No worker has asked for a shorter one. */
	size_t bytes;        /* Its slots and tables take so much. */
	struct channel_config shape; /* All its channels have this in common. */
	struct {
		struct net_ip group;      /* Results go to this multicast group, if it is one. */
		struct net_ip group_from; /* They leave from this address of ours. */
		uint64_t *tokens;         /* [world] */
		struct seal_key secret;   /* It makes the numbers of KNOCKEDs. */
		bool *multicast;     /* [world]; true: that worker gets results by the group. */
		struct seals *seals; /* [world]; NULL: there is no key. */
		uint8_t seed[SECRET_BYTES]; /* It makes what they have in common. */
	} wire;
	struct {
		bool all;         /* The kernel adds its int32 frames, on all channels. */
		const char *slow; /* This is why the kernel does not. */
		uint32_t window;  /* The kernel has so many slots for each of its channels. */
	} fast;
	struct {
		char text[CONTROL_TEXT_BYTES]; /* The last trouble of a path, in a line. */
		uint64_t at_us;                /* It was told at this time. */
	} trouble;
	uint32_t channel_count;
	struct job_channel {
		struct channel *channel;      /* NULL before START. */
		struct fast_channel *fast;    /* NULL: nothing is shared with the kernel. */
		struct fast_slot *fast_slots; /* They are `fast`'s. */
	} channels[JOBS_THREADS_MAX];
};

struct jobs {
	struct jobs_config config;
	struct jobs_ports ports;
	struct jobs_peer *peers; /* [places] */
	uint32_t places; /* It is one above peers_max, so that a newcomer always has a place. */
	LIST_HEAD(jobs_peers, jobs_peer) used; /* Peers are here or in `free`. */
	struct jobs_peers free;
	struct jobs_peer *next; /* jobs_tick() comes to this one next, unless it ends before. */
	TAILQ_HEAD(jobs_queue, jobs_peer)
	doorsteps;              /* Those at doors are in the order in which they came. */
	struct crowd waiting;   /* Peers without a job are here by address, or in `newcomers`. */
	struct crowd newcomers; /* Those at a door that have proved its key are here by key. */
	struct job *jobs;       /* [jobs_max] */
	struct crowd unstarted; /* Jobs that do not run yet are here by owner. */
	uint64_t now_us;        /* Something last came in, or the clock ticked, at this time. */
	uint64_t ticked_us;     /* The clock last ticked at this time. */
	bool unsettled;         /* A job that ends may be continued: see members_settle(). */
	struct jobs_failure failure; /* It is the last one; code "": there was none. */
	uint64_t failed_us;          /* It was at this time. */
	struct jobs_totals totals;   /* But `jobs` is counted when somebody asks. */
};

/* jobs_blame.c */
bool job_troubled(const struct jobs *jobs, const struct job *job); /* has it been told of lately? */
void path_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *message);

/* "1, 3 and 5 more": the ranks that have not come as far as the job has. */
void missing_text(const struct job *job, char *text, size_t room);

/*
 * Whom `peer` is to tell its program that the job waits for, in a line; "": nobody, or another tells.
 * One does, the first of those that wait. Before START all do: whom the job waits for to begin.
 */
#define JOBS_LATE_US 5000000 /* at least; or half the silence time, two heartbeats */
void late_text(const struct jobs *jobs, const struct jobs_peer *peer,
               char text[CONTROL_TEXT_BYTES]);

/* jobs_members.c */
void stay_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *message);
void members_settle(struct jobs *jobs); /* after each event */
void members_tick(struct jobs *jobs);

/* jobs_join.c */
/* A free place for a job of this worker's; NULL: there is none, and the worker is refused. */
struct job *job_opened(struct jobs *jobs, struct jobs_peer *opener);
bool job_begin(struct jobs *jobs, struct job *job, const struct jobs_peer *opener, const char *name,
               uint32_t world);
void job_agree(struct job *job);
void join_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *message,
               uint64_t now_us);
void ready_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *message);

/* jobs_room.c */
enum room { ROOM_JOBS, ROOM_BYTES };
/* Would the owner, with `need` of what is `unused`, take what is kept for others? */
bool room_is_kept(const struct jobs *jobs, uint64_t owner, enum room room, size_t need,
                  size_t unused);

/* jobs_state.c */
bool names_kin(const char *name, const char *other); /* are both memberships of the same job? */
struct job *job_kin(const struct jobs *jobs, const char *name); /* any membership; NULL: none */
/* It is to be a member of a job: it leaves the door, and counts as no stranger any more. */
void peer_enter(struct jobs *jobs, struct jobs_peer *peer);
/* What its JOIN says of itself. */
void peer_note(struct jobs_peer *peer, const struct control_message *join);
void jobs_log(struct jobs *jobs, const char *level, const char *event,
              const struct log_field fields[], const char *text);
struct job *job_with(const struct jobs *jobs, uint16_t channel_id); /* NULL: nobody's */
uint16_t job_channel_id(const struct jobs *jobs, const struct job *job, uint32_t thread);
uint32_t members_count(const struct job *job, enum peer_state least); /* that have come so far */
void door_leave(struct jobs *jobs, struct jobs_peer *peer);           /* if it waits at one */
void peer_send(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *message);
void peer_end(struct jobs *jobs, struct jobs_peer *peer);
bool peer_has_key(const struct jobs_peer *peer, const struct job *job); /* or neither has one */
void jobs_count_refusal(struct jobs *jobs, const char *code);
void peer_refuse(struct jobs *jobs, struct jobs_peer *peer, const char *code, const char *format,
                 ...) __attribute__((format(printf, 4, 5)));
void job_tell(struct jobs *jobs, struct job *job, const struct control_message *message);
void job_finished(struct jobs *jobs, const struct job *job, const char *text);
void job_forget(struct job *job); /* its memory is free, and it */
void job_release(struct jobs *jobs, struct job *job);
void door_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *join,
               uint64_t now_us);
struct jobs_peer *door_first(const struct jobs *jobs, const struct job *job);
uint32_t door_count(const struct jobs *jobs, const struct job *job);
/* What a job's members hear in pings: how many wait, and whether we drain; and tells them now. */
struct control_message door_ping(const struct jobs *jobs, const struct job *job);
void door_tell(struct jobs *jobs, struct job *job);
bool job_has_next(const struct job *job);         /* once it has ended, for those who are left */
void job_end(struct jobs *jobs, struct job *job); /* its members have been told, and may continue */
void peer_lost(struct jobs *jobs, struct jobs_peer *peer, const char *reason, bool stands);
void job_fail(struct jobs *jobs, struct job *job, uint32_t rank, const char *code,
              const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif /* AGGREGATOR_JOBS_STATE_H */
