/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * jobs_state.h - the state of jobs, and the functions that its files share; private to them
 *
 * jobs.c          memory, connections and their lines, time, snapshots
 * jobs_members.c  the membership that follows one that has ended
 * jobs_join.c     admission, and a job's way from the first JOIN to START
 * jobs_site.c     jobs with a parent, and jobs whose workers come through sites
 * jobs_blame.c    jobs without progress, and paths with problems
 * jobs_room.c     how many jobs, and how much memory, an owner may have beside the others
 * jobs_state.c    peers and jobs: telling them, releasing them; doors; how jobs fail
 *
 * Each file calls only those below it.
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

#define JOBS_WHERE_BYTES (2 * CONTROL_NAME_BYTES + 8)

/* What a worker has said in its last STAY. */
struct jobs_stay {
	char job[CONTROL_JOB_BYTES]; /* The membership that it joined last. */
	uint32_t rank;               /* Its rank there. */
	/* The last membership whose START reached it, or "". */
	char begun[CONTROL_JOB_BYTES];
	uint32_t of;      /* Number of workers of `begun`. */
	uint32_t admit;   /* Newcomers that may be admitted. */
	uint64_t without; /* The aggregators that it leaves out, as bits. */
	bool holds;       /* It has the state of the job. */
};

/* Where a member of a membership that we have named comes from, until its JOIN has come. */
struct job_seat {
	char job[CONTROL_JOB_BYTES]; /* "" once it has joined, or if it was no member before. */
	uint32_t rank;
};

enum peer_state {
	PEER_FREE,
	PEER_STRANGER, /* It has not joined. */
	PEER_AT_DOOR,  /* It waits for the members of the job `wanted`, or for admission by them. */
	PEER_NAMED,    /* It is a member by NEXT or STAY, but has not joined. */
	PEER_JOINED,
	PEER_READY, /* Its READY has come. */
};

struct jobs_peer {
	enum peer_state state;
	LIST_ENTRY(jobs_peer) place;     /* Its entry in `used` or `free`. */
	TAILQ_ENTRY(jobs_peer) doorstep; /* Its entry in `doorsteps`, while it waits at a door. */
	char wanted[CONTROL_JOB_BYTES];
	bool gone;  /* The others continue without it: see job_fail(). */
	bool stays; /* Its STAY has come, in its job or at a door. */
	struct jobs_stay stay;
	struct job *job;     /* NULL if it is not a member. */
	uint32_t rank;       /* At a door, the rank that it had before, or 0. */
	struct net_ip local; /* Our address on this connection. */
	void *handle;        /* Given by the caller of jobs_connected(). */
	/* The name whose key it has proved, or "". */
	char keyed_for[CONTROL_NAME_BYTES];
	/* A number for everyone with that key, or else for everyone from its address. */
	uint64_t owner;
	uint64_t since_us;  /* When it connected, or came to a door. */
	uint64_t heard_us;  /* When its last line counts as heard. */
	uint64_t pinged_us; /* When it was last sent a PING. */
	struct {            /* What it said in JOIN. */
		uint32_t payload, rcvbuf;
		uint64_t silence_us, stall_us;
	} asks;
	struct {                  /* How much it talks: a line takes JOBS_LINE_US. */
		uint64_t at_us;   /* When its last line came. */
		uint64_t left_us; /* The time that the lines until then would still have taken. */
	} talk;
	struct {                  /* What its last PING said. */
		uint32_t open;    /* Operations that it is in. */
		uint64_t tag;     /* The tag of the oldest of them. */
		uint64_t same_us; /* Since when these two have been the same. */
		uint64_t seen_us; /* When `worker.seen` came. */
	} does;
	struct jobs_worker worker;    /* For jobs_worker(), which fills in the rest. */
	char where[JOBS_WHERE_BYTES]; /* For texts: its host, and its site if it has one. */
	uint64_t via;                 /* The number of the site that it joins through, or 0. */
	struct {                      /* Its link to the parent, if jobs have one. */
		enum { UP_NONE, UP_JOINS, UP_WELCOMED, UP_STARTED } state;
	} up;
};

struct job {
	enum job_state state;
	char name[CONTROL_JOB_BYTES];
	uint64_t owner; /* The first worker's owner. */
	uint32_t world;
	struct jobs_peer **members;  /* [world]; NULL if the worker is not here, or has left. */
	struct job_seat *seats;      /* [world] */
	uint32_t opener;             /* The rank of the first worker to join. */
	bool named;                  /* We have named it, and its members are those told by NEXT. */
	bool boundary;               /* JOB_ENDING without a failure: all want to continue. */
	bool sited;                  /* It has a parent. */
	bool parted;                 /* Workers of its channels are mute, or it has a parent. */
	uint64_t since_us;           /* When it came into its state. */
	uint64_t silence_us;         /* The shortest that a worker has asked for. */
	size_t bytes;                /* Memory of its slots and tables. */
	struct channel_config shape; /* What all its channels have in common. */
	struct {
		struct net_ip group;      /* The multicast group for results, or none. */
		struct net_ip group_from; /* Our address that they leave from. */
		uint64_t *tokens;         /* [world] */
		uint16_t *speakers;       /* [world]; see struct channel_config. */
		struct seal_key secret;   /* Makes the numbers of KNOCKEDs. */
		bool *multicast;          /* [world]; the worker gets results through the group. */
		struct seals *seals;      /* [world]; NULL without a key. */
		uint8_t seed[SECRET_BYTES]; /* Makes the keys that all workers share. */
	} wire;
	struct {
		bool all;         /* The kernel adds its int32 frames, on all channels. */
		const char *slow; /* Why the kernel does not. */
		uint32_t window;  /* Slots that the kernel has for each of its channels. */
		bool above;       /* The parent's kernel adds them. */
	} fast;
	struct {
		char text[CONTROL_TEXT_BYTES]; /* The last trouble of a path, in a line. */
		uint64_t at_us;                /* When it was reported. */
	} trouble;
	uint32_t channel_count;
	struct job_channel {
		struct channel *channel;      /* NULL before START. */
		struct fast_channel *fast;    /* NULL if nothing is shared with the kernel. */
		struct fast_slot *fast_slots; /* The slots of `fast`. */
	} channels[JOBS_THREADS_MAX];
};

struct jobs {
	struct jobs_config config;
	struct jobs_ports ports;
	struct jobs_peer *peers; /* [places] */
	uint32_t places;         /* peers_max + 1, so that a newcomer always has a place. */
	LIST_HEAD(jobs_peers, jobs_peer) used; /* Peers are in this list or in `free`. */
	struct jobs_peers free;
	struct jobs_peer *next; /* The next peer for jobs_tick(), unless it ends before. */
	TAILQ_HEAD(jobs_queue, jobs_peer)
	doorsteps;              /* Peers at doors, in the order in which they came. */
	struct crowd waiting;   /* Peers without a job that are not in `newcomers`, by address. */
	struct crowd newcomers; /* Peers at a door that have proved its key, by key. */
	struct job *jobs;       /* [jobs_max] */
	struct crowd unstarted; /* Jobs that do not run yet, by owner. */
	uint64_t now_us;        /* When something last came in, or the clock ticked. */
	uint64_t ticked_us;     /* When the clock last ticked. */
	bool unsettled;         /* A job that has ended may continue: see members_settle(). */
	struct jobs_failure failure; /* The last failure; code is "" if there was none. */
	uint64_t failed_us;          /* When it happened. */
	struct jobs_totals totals;   /* All but `jobs`, which is counted on demand. */
};

/* jobs_blame.c */
bool job_troubled(const struct jobs *jobs, const struct job *job); /* recently */
void path_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *message);

/* Lists the ranks that are not as far as the job: "1, 3 and 5 more". */
void missing_text(const struct job *job, char *text, size_t room);

/*
 * Writes a line for `peer` to tell its program which worker the job waits for, or "". Only the
 * first of the waiting workers tells it. Before START all tell whom the job waits for to begin.
 */
#define JOBS_LATE_US 5000000 /* or half the silence time, two heartbeats, if that is more */
void late_text(const struct jobs *jobs, const struct jobs_peer *peer,
               char text[CONTROL_TEXT_BYTES]);

/* jobs_members.c */
void stay_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *message);
void members_settle(struct jobs *jobs); /* after each event */
void members_tick(struct jobs *jobs);

/* jobs_join.c */
/* Finds a free place for a job of this worker. NULL: there is none, and it is refused. */
struct job *job_opened(struct jobs *jobs, struct jobs_peer *opener);
bool job_begin(struct jobs *jobs, struct job *job, const struct jobs_peer *opener, const char *name,
               uint32_t world);
void job_agree(struct job *job);
void job_formed(struct jobs *jobs, struct job *job, uint64_t now_us);
void job_start(struct jobs *jobs, struct job *job);
void join_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *message,
               uint64_t now_us);
void ready_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *message);

/* jobs_room.c */
enum room { ROOM_JOBS, ROOM_BYTES };
/* Tells whether an owner that needs `need` of what is `unused` would take the part kept for others. */
bool room_is_kept(const struct jobs *jobs, uint64_t owner, enum room room, size_t need,
                  size_t unused);

/* jobs_site.c */
/* The parent's job is joined for this worker, or it is refused. */
void site_join(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *join);
bool site_formed(const struct job *job); /* the parent has sent WELCOME to all that are here */
/* A worker of another site that has the same name, or NULL. */
const struct jobs_peer *site_with_name(const struct jobs *jobs, const struct control_message *join);
void job_speakers(struct job *job); /* finds out whose blocks come with another's */
bool site_relays_open(struct jobs *jobs, struct job *job);
/* Of the workers for whom this one speaks, the first that is not in the operation, by its heartbeats; or this one. */
uint32_t site_culprit(const struct job *job, uint32_t rank, uint64_t tag);

/* jobs_state.c */
bool names_kin(const char *name, const char *other);            /* both of one job */
struct job *job_kin(const struct jobs *jobs, const char *name); /* any membership, or NULL */
/* It becomes a member of a job: it leaves the door, and no longer counts as a stranger. */
void peer_enter(struct jobs *jobs, struct jobs_peer *peer);
/* Notes what its JOIN says about it. */
void peer_note(struct jobs_peer *peer, const struct control_message *join);
void jobs_log(struct jobs *jobs, const char *level, const char *event,
              const struct log_field fields[], const char *text);
struct job *job_with(const struct jobs *jobs, uint16_t channel_id); /* NULL: no job has it */
uint16_t job_channel_id(const struct jobs *jobs, const struct job *job, uint32_t thread);
uint32_t members_count(const struct job *job, enum peer_state least); /* at least that far */
void door_leave(struct jobs *jobs, struct jobs_peer *peer);           /* if it waits at one */
void peer_send(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *message);
void peer_end(struct jobs *jobs, struct jobs_peer *peer);
bool peer_has_key(const struct jobs_peer *peer, const struct job *job); /* or neither has one */
void jobs_count_refusal(struct jobs *jobs, const char *code);
void peer_refuse(struct jobs *jobs, struct jobs_peer *peer, const char *code, const char *format,
                 ...) __attribute__((format(printf, 4, 5)));
void job_tell(struct jobs *jobs, struct job *job, const struct control_message *message);
void job_finished(struct jobs *jobs, const struct job *job, const char *text);
void job_forget(struct job *job); /* frees its memory and its place */
void job_release(struct jobs *jobs, struct job *job);
void door_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *join,
               uint64_t now_us);
struct jobs_peer *door_first(const struct jobs *jobs, const struct job *job);
uint32_t door_count(const struct jobs *jobs, const struct job *job);
/* A PING with the number of peers at the door, and whether we drain. door_tell() sends it. */
struct control_message door_ping(const struct jobs *jobs, const struct job *job);
void door_tell(struct jobs *jobs, struct job *job);
bool job_has_next(const struct job *job);         /* once it has ended, for its members */
void job_end(struct jobs *jobs, struct job *job); /* its members know, and may continue */
void peer_lost(struct jobs *jobs, struct jobs_peer *peer, const char *reason, bool stands);
void job_fail(struct jobs *jobs, struct job *job, uint32_t rank, const char *code,
              const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif /* AGGREGATOR_JOBS_STATE_H */
