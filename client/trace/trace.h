/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trace.h - records a worker's operations for winnow tune: WINNOW_TRACE=FOLDER
 *
 * Each communicator writes one file, from its first operation on, of limited size
 * (WINNOW_TRACE_LIMIT). An error such as a full disk ends the trace, not the job, and the library
 * then prints a line. One thread.
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
	uint32_t fine;            /* The elements that a bit stands for. */
	struct bitmap_pool *pool; /* Threads for scans. Outlives the trace. */
	struct trace_head head;
};

/*
 * Reads the environment and fills in all but pool and head. Returns false if no trace is wanted, or after a line on
 * stderr if a value is wrong.
 */
bool trace_config_read(struct trace_config *config);

/* Returns 0, -ENOMEM, or -errno if the file cannot be created. */
int trace_open(const struct trace_config *config, struct trace **out, struct why *why);

/* Returns false after the trace has ended early. */
bool trace_writes(const struct trace *trace);

/*
 * trace_operation() scans and records an operation that is submitted and has not begun. trace_bitmap() records a part
 * of an operation that another module has scanned, with a bit for each `fine` elements. Without `bits` (no memory for
 * them) the trace ends.
 */
void trace_operation(struct trace *trace, const struct allreduce *task);
void trace_bitmap(struct trace *trace, const struct allreduce *task,
                  const struct geometry_part *part, const uint64_t *bits);

/* Writes the end record with the job's totals and closes the file. Accepts NULL. */
void trace_close(struct trace *trace, uint64_t sent_bytes, uint64_t received_bytes,
                 uint64_t retransmits);

#endif /* CLIENT_TRACE_H */
