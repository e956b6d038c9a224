/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * line_proof.h - lines of the control connection that nobody on the path can forge, change or repeat
 *
 * PROTOCOL.md section 5.6. In a job with a key each line after JOIN but WELCOME begins with a proof: its
 * number, and a MAC of both. One struct is one direction of one connection, at one of its ends.
 */
#ifndef BITMAP_CONTROL_LINE_PROOF_H
#define BITMAP_CONTROL_LINE_PROOF_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/control/seal_keys.h"

struct line_proof {
	bool on;       /* false: lines are as they are */
	uint64_t next; /* number; an earlier one has been used */
	uint8_t key[PROOF_BYTES];
};

/* line_proofs_make - the keys of both directions, which are not on yet. */
void line_proofs_make(const struct job_secret *secret, const struct transcript *transcript,
                      struct line_proof *to_aggregator, struct line_proof *to_worker);

/* line_proofs_early - those from JOIN to WELCOME: on. The transcript is of HELLO and JOIN. */
void line_proofs_early(const struct proof_key *key, const char *job, uint32_t world,
                       const struct transcript *transcript, struct line_proof *to_aggregator,
                       struct line_proof *to_worker);

/* line_prove - `line`, malloc'ed and with its newline, with its proof. It is freed; NULL: out of memory. */
char *line_prove(struct line_proof *proof, char *line);

/* line_proven - what `line` says, which lies in it; NULL: it is not from the other end, or not new. */
const char *line_proven(struct line_proof *proof, const char *line);

#endif /* BITMAP_CONTROL_LINE_PROOF_H */
