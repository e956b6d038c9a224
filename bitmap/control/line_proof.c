// SPDX-License-Identifier: BSD-3-Clause
/* line_proof.c - see line_proof.h */

#include "bitmap/control/line_proof.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "bitmap/control/keyed_hash.h"

#define MAC_BYTES 16
#define NUMBER_BYTES 8
#define DIGITS (2 * (NUMBER_BYTES + MAC_BYTES))

void line_proofs_make(const struct job_secret *secret, const struct transcript *transcript,
                      struct line_proof *to_aggregator, struct line_proof *to_worker)
{
	*to_aggregator = *to_worker = (struct line_proof){0};
	line_key(secret, transcript, "winnow to aggregator 2", to_aggregator->key);
	line_key(secret, transcript, "winnow to worker 2", to_worker->key);
}

void line_proofs_early(const struct proof_key *key, const char *job, uint32_t world,
                       const struct transcript *transcript, struct line_proof *to_aggregator,
                       struct line_proof *to_worker)
{
	static const uint8_t no_salt[PROOF_BYTES];
	struct job_secret secret;

	job_secret_make(key, no_salt, 0, job, world, &secret);
	line_proofs_make(&secret, transcript, to_aggregator, to_worker);
	explicit_bzero(&secret, sizeof(secret));
	to_aggregator->on = to_worker->on = true;
}

/* Of the line with this number, up to its newline: the number and the MAC in lower-case hex digits. */
static void proof_text(const struct line_proof *proof, uint64_t number, const char *line,
                       char out[DIGITS + 1])
{
	uint8_t bytes[NUMBER_BYTES + MAC_BYTES];
	const struct hash_part parts[] = {{bytes, NUMBER_BYTES}, {line, strcspn(line, "\n")}};

	for (uint32_t i = 0; i < NUMBER_BYTES; i++)
		bytes[i] = (uint8_t)(number >> 8 * (NUMBER_BYTES - 1 - i));
	keyed_hash(proof->key, parts, 2, bytes + NUMBER_BYTES, MAC_BYTES);
	sodium_bin2hex(out, DIGITS + 1, bytes, sizeof(bytes));
}

char *line_prove(struct line_proof *proof, char *line)
{
	size_t bytes;
	char *out;

	if (!proof->on || line == NULL)
		return line;
	bytes = strlen(line) + 1;
	out = malloc(DIGITS + 1 + bytes);
	if (out != NULL) {
		proof_text(proof, proof->next++, line, out);
		out[DIGITS] = ' ';
		memcpy(out + DIGITS + 1, line, bytes);
	}
	free(line);
	return out;
}

const char *line_proven(struct line_proof *proof, const char *line)
{
	char want[DIGITS + 1] = "";
	uint64_t number;

	if (!proof->on)
		return line;
	if (strnlen(line, DIGITS + 1) <= DIGITS || line[DIGITS] != ' ')
		return NULL;
	memcpy(want, line, 2 * NUMBER_BYTES);
	number = strtoull(want, NULL, 16);
	proof_text(proof, number, line + DIGITS + 1, want);
	if (number < proof->next || sodium_memcmp(want, line, DIGITS) != 0)
		return NULL;
	proof->next = number + 1;
	return line + DIGITS + 1;
}
