/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * knocks.h - from which address a channel takes a worker's datagrams, and whether they arrive
 *
 * PROTOCOL.md, section 5.3. KNOCKs are numbered, so a recorded one that somebody sends again
 * changes nothing. Pure: the data plane and the simulation have one struct knocker for each worker
 * of each channel.
 */
#ifndef AGGREGATOR_KNOCKS_H
#define AGGREGATOR_KNOCKS_H

#include "aggregator/jobs/jobs.h"

#define KNOCK_PATH_WORDS 6

/* All zero until a KNOCK has come. */
struct knocker {
	uint32_t count;    /* The count in the latest KNOCK. */
	uint64_t any_us;   /* When the latest KNOCK came. */
	uint64_t whole_us; /* When the latest one as large as the job's datagrams came. */
};

/* A KNOCK, and what its caller knows about it. */
struct knock_arrival {
	const struct packet *packet;
	bool home;      /* It came from the worker's noted address to our noted one. */
	bool whole;     /* It is as large as the job's datagrams. */
	bool started;   /* The job has started. */
	bool sealed;    /* The job has a key, and the KNOCK has its seal. */
	uint64_t proof; /* knock_proof() of the addresses that it came by. */
};

enum knock_verdict {
	KNOCK_STRANGE, /* It is dropped. */
	KNOCK_ASKED,   /* It is answered with the proof, but not noted. */
	KNOCK_HOME,    /* Its address is the worker's. */
};

/*
 * knock_proof - a KNOCK carries it to show that its sender hears what is sent to its address. 5.3:
 * "The proof is made of both addresses, channel, rank, and a secret of the job. It is not 0."
 */
static inline uint64_t knock_proof(const struct seal_key *secret,
                                   const uint64_t path[KNOCK_PATH_WORDS])
{
	struct sip sip;
	uint64_t proof;

	sip_begin(&sip, secret);
	for (uint32_t i = 0; i < KNOCK_PATH_WORDS; i++)
		sip_word(&sip, path[i]);
	proof = sip_end(&sip, KNOCK_PATH_WORDS * 8);
	return proof != 0 ? proof : 1;
}

static inline enum knock_verdict knock_judge(const struct knocker *knocker,
                                             const struct knock_arrival *knock)
{
	if (knock->home)
		return KNOCK_HOME;
	if (knock->started && !knock->sealed)
		return KNOCK_STRANGE;
	/* 5.3: "if its count is not later than that of the latest KNOCK taken" */
	if (knocker->any_us != 0 && !frame_before(knocker->count, knock->packet->frame))
		return KNOCK_STRANGE;
	return knock->packet->number == knock->proof ? KNOCK_HOME : KNOCK_ASKED;
}

/*
 * Notes a KNOCK that is not strange. A count that is not later may come from a recording, and
 * without a seal a KNOCK may come from anywhere; neither shows that we hear the worker.
 */
static inline void knock_note(struct knocker *knocker, const struct knock_arrival *knock,
                              enum knock_verdict verdict, uint64_t now_us)
{
	const struct packet *packet = knock->packet;

	if (verdict == KNOCK_ASKED && !knock->sealed)
		return;
	if (knocker->any_us != 0 && !frame_before(knocker->count, packet->frame))
		return;
	knocker->count = packet->frame;
	knocker->any_us = now_us;
	if (knock->whole)
		knocker->whole_us = now_us;
}

/* Says how long ago the last ones came. */
static inline void knock_ages(const struct knocker *knocker, uint64_t now_us,
                              struct jobs_heard *out)
{
	out->any_us = knocker->any_us != 0 ? now_us - knocker->any_us : UINT64_MAX;
	out->whole_us = knocker->whole_us != 0 ? now_us - knocker->whole_us : UINT64_MAX;
}

#endif /* AGGREGATOR_KNOCKS_H */
