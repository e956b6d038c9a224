/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * source.h - the operations of winnow tune: from raw files, a job's trace, or a pattern
 *
 * An operation consists of a tensor's size and type, and of a bitmap for each worker with one bit for
 * `fine` elements, which is made on request.
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
	uint32_t block;          /* The job's block size, or 0 if unknown or in tiles. */
	uint64_t row;            /* Elements of a row, or 0 if unknown. */
	const char **paths;      /* [world] files, owned by the caller; NULL without files. */
	const uint32_t *entries; /* [world] its index among each worker's entries in the trace. */
};

struct source {
	uint32_t world;
	uint32_t fine; /* Elements of a bit. The caller sets it for files and patterns. */
	uint32_t op_count;
	struct source_op *ops;
	char note[512]; /* A remark for the user, or "". */

	/* With a trace: the folder's files, the workers' first, and the memory of ops[].entries. */
	struct trace_file **traces;
	uint32_t trace_count;
	uint32_t *entries;
	const char *job; /* The job's name, or NULL if a worker's totals are missing. */
	uint64_t job_operations, job_sent, job_received; /* The bytes of an average worker. */
	struct pattern pattern;                          /* With a pattern. */
};

/*
 * Opens files, each of which holds only elements of op->dtype. If `world` is 0, each file is a worker's. Returns 0, or
 * 1 (cannot be read) or 2 (wrong usage) with a line in `why`.
 */
int source_files(struct source *s, const char **paths, uint32_t count, const struct source_op *op,
                 uint32_t world, struct why *why);

/* Opens the latest run of `job` in a folder of traces. If `job` is NULL, there must be only one job. */
int source_trace(struct source *s, const char *folder, const char *job, uint32_t world,
                 struct why *why);

/* Makes up one operation, whose rows are the pattern's units. */
void source_pattern(struct source *s, const struct pattern *pattern, const struct source_op *op,
                    uint32_t world);

void source_close(struct source *s);

/* Keeps at most `most` operations, spread evenly, or all if it is 0. */
void source_thin(struct source *s, uint32_t most);

/* Writes the bitmap of `rank` in operation `op`, in units of s->fine. Returns 0, or 1 and a line in `why`. */
int source_bits(const struct source *s, uint32_t op, uint32_t rank, uint64_t *bits,
                struct why *why);

static inline uint64_t source_bit_count(const struct source *s, uint32_t op)
{
	return s->ops[op].count / s->fine + (s->ops[op].count % s->fine != 0);
}

#endif /* CLIENT_CLI_SOURCE_H */
