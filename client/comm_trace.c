// SPDX-License-Identifier: BSD-3-Clause
/* comm_trace.c - a communicator's trace: begun with its first operation, ended with it */

#include <sodium.h>
#include <string.h>
#include <time.h>

#include "client/comm.h"

/*
 * One number for a run of a job, the same on all workers: of the tokens that the aggregators gave
 * it, in whatever order; one cannot tell the tokens from it.
 */
static uint64_t run_number(const struct session *session)
{
	uint64_t tokens = session_tokens(session), number;
	uint8_t hash[crypto_generichash_BYTES_MIN];

	crypto_generichash(hash, sizeof(hash), (const uint8_t *)&tokens, sizeof(tokens), NULL, 0);
	memcpy(&number, hash, sizeof(number));
	return number;
}

static void begin(struct winnow_comm *comm)
{
	struct trace_config config;
	struct winnow_stats stats;

	comm->trace_tried = true;
	if (!trace_config_read(&config))
		return;
	session_stats(comm->session, &stats);
	config.pool = comm->pool;
	config.head = (struct trace_head){
		.run = run_number(comm->session),
		.started_s = (uint64_t)time(NULL),
		.rank = comm->rank,
		.world = comm->world,
		.aggregators = comm->peer_count,
		.channels = stats.channels,
		.payload = stats.payload,
		.window = stats.window,
		.multicast = stats.multicast,
	};
	memcpy(config.head.job, comm->job, sizeof(config.head.job));
	comm->trace = trace_open(&config);
}

void comm_trace(struct winnow_comm *comm, const struct allreduce *task)
{
	/* Only arrays in this process's memory can be looked at here. */
	if (session_state(comm->session) != SESSION_RUNNING || task->access != NULL)
		return;
	if (!comm->trace_tried)
		begin(comm);
	if (comm->trace != NULL)
		trace_operation(comm->trace, task);
}

void comm_trace_end(struct winnow_comm *comm)
{
	struct winnow_stats stats;

	if (comm->trace == NULL)
		return;
	session_stats(comm->session, &stats);
	trace_close(comm->trace, stats.sent_bytes, stats.received_bytes, stats.retransmits);
	comm->trace = NULL;
}
