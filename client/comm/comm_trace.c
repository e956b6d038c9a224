// SPDX-License-Identifier: BSD-3-Clause
/* comm_trace.c - a communicator's trace, from its first operation to its end */

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/comm/comm_state.h"

/*
 * A number for this run of the job, which is the same on all workers. It is a hash of the aggregators' tokens that does
 * not depend on their order and does not reveal them.
 */
static uint64_t run_number(const struct session *session)
{
	const uint64_t tokens[SECRET_BYTES / 8] = {session_tokens(session)};
	uint64_t number = 0;

	(void)secret_expand((const uint8_t *)tokens, &number, sizeof(number));
	return number;
}

void comm_trace_open(struct winnow_comm *comm)
{
	if (trace_config_read(&comm->run.trace_config))
		atomic_store(&comm->any.trace_fine, comm->run.trace_config.fine);
}

/* The first operation tries it, once, because the file's name and head are not known before. */
static void trace_begin(struct winnow_comm *comm)
{
	struct trace_config *config = &comm->run.trace_config;
	struct winnow_stats stats;
	struct why why;

	if (config->folder == NULL)
		return;
	session_stats(comm->session, &stats);
	config->pool = comm->fixed.pool;
	config->head = (struct trace_head){
		.run = run_number(comm->session),
		.started_s = (uint64_t)time(NULL),
		.rank = comm->move.config.rank,
		.world = comm->move.config.world,
		.aggregators = comm->move.peer_count,
		.channels = stats.channels,
		.payload = stats.payload,
		.window = stats.window,
		.multicast = stats.multicast,
	};
	memcpy(config->head.job, comm->move.job,
	       message_name_base(comm->move.job)); /* It becomes part of the file's name. */
	if (trace_open(config, &comm->run.trace, &why) != 0)
		fprintf(stderr, "winnow: %s; the job continues\n", why.text);
	config->folder = NULL;
}

/* Callers read it when they begin an operation on a GPU. It changes when a trace begins or ends. */
static void fine_publish(struct winnow_comm *comm)
{
	bool writes = comm->run.trace != NULL && trace_writes(comm->run.trace);

	atomic_store(&comm->any.trace_fine, writes ? comm->run.trace_config.fine : 0);
}

void comm_trace(struct winnow_comm *comm, const struct allreduce *task)
{
	if (session_state(comm->session) != SESSION_RUNNING)
		return;
	trace_begin(comm);
	/* For a tensor on a GPU comm_trace_viewed() follows. */
	if (comm->run.trace != NULL && task->access != &staging_access)
		trace_operation(comm->run.trace, task);
	fine_publish(comm);
}

void comm_trace_viewed(void *context, const struct geometry_part *part, const uint64_t *bits)
{
	const struct winnow_request *request = context;
	struct winnow_comm *comm = request->comm;

	if (comm->run.trace == NULL)
		return; /* The trace could not be opened. */
	trace_bitmap(comm->run.trace, &request->task, part, bits);
	fine_publish(comm);
}

void comm_trace_end(struct winnow_comm *comm)
{
	struct winnow_stats stats;

	if (comm->run.trace == NULL)
		return;
	session_stats(comm->session, &stats);
	trace_close(comm->run.trace, stats.sent_bytes, stats.received_bytes, stats.retransmits);
	comm->run.trace = NULL;
	fine_publish(comm);
}
