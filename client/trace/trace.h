/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trace.h - recording a worker's operations for winnow tune: WINNOW_TRACE=FOLDER
 *
 * One file a communicator, from its first operation on. Its size is bounded (WINNOW_TRACE_LIMIT),
 * and a full disk ends the trace, not the job: then, and only then, the library prints a line. One
 * thread.
 */
#ifndef CLIENT_TRACE_H
#define CLIENT_TRACE_H

#include "bitmap/pool.h"
#include "bitmap/why.h"
#include "client/worker/allreduce.h"
#include "client/trace/trace_format.h"

struct trace;

struct trace_config {
	const char *folder;
	uint64_t limit_bytes;
	uint32_t fine;            /* elements a bit stands for */
	struct bitmap_pool *pool; /* scans; outlives the trace */
	struct trace_head head;
};

/*
 * trace_config_read - what the environment asks for; false: nothing, or what cannot be (said on
 * stderr). Fills in all but pool and head.
 */
bool trace_config_read(struct trace_config *config);

/* trace_open - 0; -ENOMEM, or -errno when the file cannot be made. */
int trace_open(const struct trace_config *config, struct trace **out, struct why *why);

/* trace_writes - false: its file has come to an end. */
bool trace_writes(const struct trace *trace);

/*
 * trace_operation - an operation that has been submitted and not begun; its tensor is read.
 * trace_bitmap(): a part of one where others have looked: a bit for `fine` elements of its trace_config. NULL: there was
 * no memory to look, and the trace ends.
 */
void trace_operation(struct trace *trace, const struct allreduce *task);
void trace_bitmap(struct trace *trace, const struct allreduce *task,
                  const struct geometry_part *part, const uint64_t *bits);

/* trace_close - the end record with the job's totals, and the end; NULL is fine. */
void trace_close(struct trace *trace, uint64_t sent_bytes, uint64_t received_bytes,
                 uint64_t retransmits);

#endif /* CLIENT_TRACE_H */
