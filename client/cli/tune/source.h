/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * source.h - where winnow tune's operations come from: raw files, a job's trace, or a pattern
 *
 * From any of them, an operation is a tensor's size and type, and for each worker a bitmap with a
 * bit for `fine` elements, made on request.
 */
#ifndef CLIENT_CLI_SOURCE_H
#define CLIENT_CLI_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/dtype.h"
#include "bitmap/why.h"
#include "client/cli/pattern.h"
#include "client/cli/tune/trace_read.h"

#define SOURCE_FILES_MAX 4096

struct source_op {
	uint64_t count, tag;
	enum dtype dtype;
	uint8_t form;
	uint32_t block;          /* the block size that a job used; 0: unknown, or in tiles */
	uint64_t row;            /* elements of a row, when there are rows; 0: unknown */
	const char **paths;      /* [world] of files, owned by the caller; else NULL */
	const uint32_t *entries; /* [world] of a trace: which of the workers' entries it is */
};

struct source {
	uint32_t world;
	uint32_t fine; /* elements of a bit; of files and patterns the caller chooses it */
	uint32_t op_count;
	struct source_op *ops;
	char note[512]; /* something that the user should know; "" if nothing */

	/* A trace: the folder's files, the workers' first, and what ops[].entries point into. */
	struct trace_file **traces;
	uint32_t trace_count;
	uint32_t *entries;
	const char *job; /* The job's name; NULL: not all its workers said what they sent. */
	/* The bytes are a worker's, on the average. */
	uint64_t job_operations, job_sent, job_received;
	struct pattern pattern; /* Without a trace. */
};

/*
 * 0, 1 (cannot be read) or 2 (wrong usage) with one line in `why`. `world` 0: as many as there are. A file holds
 * elements of op->dtype, and nothing else.
 */
int source_files(struct source *s, const char **paths, uint32_t count, const struct source_op *op,
                 uint32_t world, struct why *why);

/* A folder that WINNOW_TRACE named; `job` NULL: the only one there is; its latest run. */
int source_trace(struct source *s, const char *folder, const char *job, uint32_t world,
                 struct why *why);

/* One made-up operation, whose rows are the pattern's units. */
void source_pattern(struct source *s, const struct pattern *pattern, const struct source_op *op,
                    uint32_t world);

void source_close(struct source *s);

/* Keep at most `most` operations, spread evenly; 0: all. */
void source_thin(struct source *s, uint32_t most);

/* bits[..] of `rank` in operation `op`, in units of s->fine. 0, or 1 and a line in `why`. */
int source_bits(const struct source *s, uint32_t op, uint32_t rank, uint64_t *bits,
                struct why *why);

static inline uint64_t source_bit_count(const struct source *s, uint32_t op)
{
	return s->ops[op].count / s->fine + (s->ops[op].count % s->fine != 0);
}

#endif /* CLIENT_CLI_SOURCE_H */
