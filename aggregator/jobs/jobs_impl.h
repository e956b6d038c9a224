/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * jobs_impl.h - what the jobs*.c files share; private to them
 *
 * jobs.c        memory, connections, what comes from them, time, what is shown
 * jobs_join.c   admission, and a job's way from the first JOIN to START
 * jobs_order.c  what an operator wants of a job that runs
 * jobs_blame.c  jobs that get no further, and paths with which something is wrong
 * jobs_end.c    how jobs fail, and how those who are left continue
 * jobs_room.c   how many jobs, and how much memory, an owner may have beside the others
 * jobs_door.c   newcomers, who wait until the members admit them
 * jobs_state.c  peers and jobs: telling them, giving back what they hold
 *
 * Each calls only what stands below it.
 */
#ifndef AGGREGATOR_JOBS_IMPL_H
#define AGGREGATOR_JOBS_IMPL_H

#include "aggregator/jobs/crowd.h"
#include "aggregator/control/line_proof.h"
#include "aggregator/jobs/jobs.h"
#include "ebpf/seal.h"

enum job_state { JOB_FREE, JOB_FORMING, JOB_PROBING, JOB_RUNNING, JOB_ENDING };

#define JOBS_SUCCESSIONS 1024 /* that are remembered */
#define JOBS_FAILED 64        /* that are remembered, for the count of those that continue */

/* A membership has ended, and these are who goes on: at most one such membership, of the same job. */
struct jobs_succession {
	uint64_t of; /* see job_mark() */
	char to[CONTROL_JOB_BYTES];
	bool ours; /* we have named it */
};

#define JOBS_PAUSE_FORGET_US 60000000 /* when its job has been away for so long */

/* All memberships of this job, those to come included, begin no operation. */
struct jobs_pause {
	char name[CONTROL_NAME_BYTES]; /* "": none */
	uint64_t owner;                /* of the job that was paused */
	uint32_t here;                 /* memberships; */
	uint64_t seen_us;              /* when there last was one */
};

struct jobs_peer {
	bool used;
	bool ready;
	bool door; /* it is no member yet, and waits for this job's members: */
	char wanted[CONTROL_JOB_BYTES];
	bool gone;          /* the others continue without it: see job_fail() */
	bool stays;         /* it wants to continue, and does so as we say, */
	bool fewer;         /* with fewer aggregators, or it does not know, */
	uint32_t most;      /* admits so many newcomers; 0: none, */
	uint64_t without;   /* namely without these of the workers' list; */
	uint64_t agreed;    /* if all agree and nobody is lost, without these instead; */
	uint32_t of, named; /* STAY: as control_message has them */
	bool first;         /* where it had rank 0 */
	bool of_before;     /* it comes from the membership before its job's */
	struct job *job;    /* NULL before JOIN is accepted */
	uint32_t rank;      /* in it; at a door: that it had before, 0: none */
	uint32_t payload, rcvbuf, features;
	uint64_t silence_us, stall_us; /* as it has asked; its job's hold once all have joined */
	struct net_ip local, ip;       /* ours, its */
	void *handle;
	uint64_t since_us, heard_us, pinged_us;
	uint32_t open;            /* operations that it was in when it last pinged, */
	uint64_t tag;             /* and the oldest one's; */
	uint64_t same_us;         /* since when it says so */
	struct control_seen seen; /* of its path, and before, and how long before: */
	struct control_seen seen_before;
	uint64_t seen_us, seen_over_us;
	char says[CONTROL_NAME_BYTES]; /* its program, for people */
	struct proof_key key;          /* it has shown that it knows; */
	bool keyed;                    /* false: none was asked for */
	struct transcript transcript;
	struct line_proof lines_in, lines_out;     /* on once it has joined with a key; */
	struct line_proof lines_early;             /* lines_in until WELCOME */
	bool forged;                               /* a line with a wrong proof has come */
	uint8_t nonce[CONTROL_NONCE_BYTES];        /* ours */
	uint8_t client_nonce[CONTROL_NONCE_BYTES]; /* its */
	char host[CONTROL_NAME_BYTES];
	char address[NET_TEXT_BYTES];
};

struct job {
	enum job_state state;
	char name[CONTROL_JOB_BYTES];
	uint64_t owner; /* its first worker's, see peer_owner() */
	uint32_t world;
	uint32_t joined, ready, left;
	uint32_t features;          /* that we and all who have joined have */
	struct jobs_peer **members; /* [world]; NULL: not here, or has left */
	uint64_t since_us;
	struct jobs_pause *pause; /* NULL: it is not paused */
	uint64_t resumed_us;      /* no waiting counts that began before; 0: it was never paused */
	uint64_t silence_us; /* the shortest that any of its workers has asked for; stall_us too */
	uint32_t opener;     /* rank of the first worker */
	bool begun;          /* JOB_ENDING: all had joined, */
	bool whole;          /* and all of them want to continue: nothing has failed */
	uint64_t token;      /* that its workers know, and no others; 0 before all have joined */
	uint32_t epoch;      /* 0 so far: a changed membership is a job of its own */
	struct proof_share share; /* what it is to have of a network that it shares */
	size_t bytes;
	struct channel_config shape; /* of all its channels, as far as they are alike */
	struct net_ip group, group_from;
	uint64_t *tokens;       /* [world] */
	struct seal_key secret; /* that the numbers of KNOCKEDs are made with */
	bool *multicast;        /* [world]: who gets results so */
	struct proof_key key;   /* that its first worker has proved; */
	struct seals *seals;    /* [world] keys made of it. NULL: there is none */
	uint8_t salt[PROOF_BYTES];
	bool fast;                        /* the kernel adds its int32 frames, on all channels; */
	const char *slow;                 /* or why it does not */
	uint32_t fast_window;             /* slots that the kernel has for a channel of this job */
	char trouble[CONTROL_TEXT_BYTES]; /* the last, */
	uint64_t trouble_us;              /* and when it was told */
	uint32_t channel_count;
	struct job_channel {
		struct channel *channel;   /* NULL before START */
		struct fast_channel *fast; /* NULL: nothing is shared with the kernel */
		struct fast_slot *fast_slots;
	} channels[JOBS_THREADS_MAX];
	uint16_t channel_ids[JOBS_THREADS_MAX];
};

struct jobs {
	struct jobs_config config;
	struct jobs_ports ports;
	struct jobs_peer *peers; /* [places] */
	uint32_t places; /* one more than peers_max, so that there is always one for a newcomer */
	struct crowd waiting;   /* peers without a job, by address, but for these: */
	struct crowd newcomers; /* those at a door that have proved its key, by key */
	struct job *jobs;       /* [jobs_max] */
	struct crowd unstarted; /* jobs that do not run yet, by owner */
	uint64_t now_us;        /* when anything last came in, or the clock ticked */
	uint64_t ticked_us;
	struct jobs_succession successions[JOBS_SUCCESSIONS];
	struct crowd remembered;   /* of these, by owner */
	struct jobs_pause *pauses; /* [pause_places] */
	uint32_t pause_places;     /* twice jobs_max: half of them may be of jobs that are away */
	struct crowd away; /* of jobs_order.c alone: those whose job is not here, by owner */
	struct jobs_failure failure;                /* code "": none */
	uint64_t failed_us;                         /* when it was */
	struct jobs_succession failed[JOBS_FAILED]; /* the last: what stands for each, its name */
	uint32_t failed_count;
	struct jobs_totals totals; /* but for `jobs`, which is counted when it is asked for */
};

/* jobs_order.c */
void order_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *order);
struct jobs_pause *pause_named(const struct jobs *jobs, const char *name); /* NULL: there is none */
void pauses_tick(struct jobs *jobs);

/* jobs_blame.c */
bool job_troubled(const struct jobs *jobs, const struct job *job); /* has it been told of lately? */
void path_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *message);
void move_take(struct jobs *jobs, struct jobs_peer *peer);

/* "1, 3 and 5 more": the ranks that have not come as far as the job has. */
void missing_text(const struct job *job, char *text, size_t room);

/*
 * Whom `peer` is to tell its program that the job waits for, in a line; "": nobody, or another tells.
 * One does, the first of those that wait. Before START all do: whom the job waits for to begin.
 */
#define JOBS_LATE_US 5000000 /* at least; or half the silence time, two heartbeats */
void late_text(const struct jobs *jobs, const struct jobs_peer *peer,
               char text[CONTROL_TEXT_BYTES]);

/* jobs_join.c */
void join_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *message,
               uint64_t now_us);
void ready_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *message);

/* jobs_end.c */

/* May a worker join a membership with this name, coming from the one that `after` stands for? NULL; or why not. */
const char *succession_forbids(const struct jobs *jobs, const char *name, uint64_t after);
/* It has joined: no other membership succeeds that one here. */
void succession_take(struct jobs *jobs, const struct job *job, uint64_t after);
bool job_named_here(const struct jobs *jobs, const struct job *job); /* by us, as a successor */
void stay_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *message);
void job_ending_tick(struct jobs *jobs, struct job *job);
void peer_lost(struct jobs *jobs, struct jobs_peer *peer, const char *reason, bool stands);
void job_fail(struct jobs *jobs, struct job *job, uint32_t rank, const char *code,
              const char *format, ...) __attribute__((format(printf, 5, 6)));

/* jobs_room.c */
enum room { ROOM_JOBS, ROOM_BYTES };
/* Would the owner, with `need` of what is `unused`, take what is kept for others? */
bool room_is_kept(const struct jobs *jobs, uint64_t owner, enum room room, size_t need,
                  size_t unused);

/* jobs_door.c */
void door_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *join,
               uint64_t now_us);
struct jobs_peer *door_first(const struct jobs *jobs, const struct job *job);
uint32_t door_count(const struct jobs *jobs, const struct job *job);
/* What a job's members hear in pings: how many wait, and whether we drain; and tells them now. */
struct control_message door_ping(const struct jobs *jobs, const struct job *job);
void door_tell(struct jobs *jobs, struct job *job);

/* jobs_state.c */
bool names_kin(const char *name, const char *other); /* are both memberships of the same job? */
void job_pause_set(struct job *job, struct jobs_pause *pause); /* NULL: it is paused no more */
void jobs_log(struct jobs *jobs, const char *level, const char *event,
              const struct log_field fields[], const char *text);
struct job *job_with(struct jobs *jobs, uint16_t channel_id);     /* NULL: nobody's */
uint8_t job_dscp(const struct jobs *jobs, const struct job *job); /* class of what it gets */
uint16_t job_channel_id(const struct jobs *jobs, const struct job *job, uint32_t thread);
void peer_send(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *message);
void peer_end(struct jobs *jobs, struct jobs_peer *peer);
bool peer_has_key(const struct jobs_peer *peer, const struct job *job); /* or neither has one */
/* Everyone with the key that it has proved; else the address from which it came. */
uint64_t peer_owner(const struct jobs_peer *peer);
void jobs_count_refusal(struct jobs *jobs, const char *code);
void peer_refuse(struct jobs *jobs, struct jobs_peer *peer, const char *code, const char *format,
                 ...) __attribute__((format(printf, 4, 5)));
void job_tell(struct jobs *jobs, struct job *job, const struct control_message *message);
void job_finished(struct jobs *jobs, const struct job *job, const char *text);
void job_forget(struct job *job); /* its memory is free, and it */
void job_detach(struct jobs *jobs, struct job *job);
void job_release(struct jobs *jobs, struct job *job);

#endif /* AGGREGATOR_JOBS_IMPL_H */
