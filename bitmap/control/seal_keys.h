/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * seal_keys.h - the keys of a job's datagrams and lines, which both sides make of what they have said at the join
 *
 * PROTOCOL.md section 5.5. None is ever sent. The transcript holds the lines of HELLO, JOIN and
 * WELCOME, so nobody who changes one of them on its way gets a datagram or a line through.
 */
#ifndef BITMAP_CONTROL_SEAL_KEYS_H
#define BITMAP_CONTROL_SEAL_KEYS_H

#include "bitmap/control/proof.h"
#include "ebpf/seal_words.h"

struct transcript {
	uint8_t hash[PROOF_BYTES]; /* at first all zero */
};

/* The secret of one start of a job. */
struct job_secret {
	uint8_t bytes[PROOF_BYTES];
};

void transcript_add(struct transcript *transcript, const char *line); /* up to its newline */

void job_secret_make(const struct proof_key *key, const uint8_t salt[PROOF_BYTES], uint32_t epoch,
                     const char *job, uint32_t world, struct job_secret *out);

void seal_stretch_make(const struct job_secret *secret, struct seal_stretch *out);
void seal_group_key(const struct job_secret *secret, struct seal_key *out);
void seal_worker_key(const struct job_secret *secret, const struct transcript *transcript,
                     struct seal_key *out);

/* Of one direction of this worker's connection: see line_proof.h. */
void line_key(const struct job_secret *secret, const struct transcript *transcript,
              const char *label, uint8_t out[PROOF_BYTES]);

#endif /* BITMAP_CONTROL_SEAL_KEYS_H */
