// SPDX-License-Identifier: BSD-3-Clause
/* comm_trace.c - a communicator's trace, from its first operation to its end */

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/comm/comm.h"

/*
 * A number for this run of the job, the same on all workers: a hash of the aggregators' tokens,
 * which does not depend on their order and does not reveal them.
 */
static uint64_t run_number(const struct session *session)
{
	uint64_t tokens = session_tokens(session), number;
	uint8_t hash[crypto_generichash_BYTES_MIN];

	crypto_generichash(hash, sizeof(hash), (const uint8_t *)&tokens, sizeof(tokens), NULL, 0);
	memcpy(&number, hash, sizeof(number));
	return number;
}

/* `config` lacks what is the communicator's. */
static int trace_begin(struct winnow_comm *comm, struct trace_config *config, struct why *why)
{
	struct winnow_stats *stats = &comm->trace_before;

	session_stats(comm->session, stats);
	config->pool = comm->pool;
	config->head = (struct trace_head){
		.run = run_number(comm->session),
		.started_s = (uint64_t)time(NULL),
		.rank = comm->rank,
		.world = comm->world,
		.aggregators = comm->peer_count,
		.channels = stats->channels,
		.payload = stats->payload,
		.window = stats->window,
		.multicast = stats->multicast,
	};
	memcpy(config->head.job, comm->job,
	       message_name_base(comm->job)); /* it is in the file's name */
	return trace_open(config, &comm->trace, why);
}

void comm_trace_open(struct winnow_comm *comm)
{
	if (trace_config_read(&comm->trace_config))
		atomic_store(&comm->trace_fine, comm->trace_config.fine);
}

static void begin_by_environment(struct winnow_comm *comm)
{
	struct why why;

	comm->trace_tried = true;
	if (comm->trace != NULL || comm->trace_config.folder == NULL)
		return;
	if (trace_begin(comm, &comm->trace_config, &why) != 0)
		fprintf(stderr, "winnow: %s; the job goes on\n", why.text);
}

/* Callers read the path. Update it when a trace begins or ends. */
static void path_publish(struct winnow_comm *comm)
{
	const char *path = comm->trace != NULL ? trace_path(comm->trace) : NULL;

	atomic_store(&comm->trace_fine, path != NULL ? trace_fine(comm->trace) : 0);
	if ((path == NULL) == (comm->trace_path[0] == '\0'))
		return;
	pthread_mutex_lock(&comm->lock);
	snprintf(comm->trace_path, sizeof(comm->trace_path), "%s", path != NULL ? path : "");
	pthread_mutex_unlock(&comm->lock);
}

const char *winnow_comm_trace(struct winnow_comm *comm)
{
	static _Thread_local char copy[TRACE_PATH_BYTES];

	if (comm->inherited)
		return "";
	pthread_mutex_lock(&comm->lock);
	snprintf(copy, sizeof(copy), "%s", comm->trace_path);
	pthread_mutex_unlock(&comm->lock);
	return copy;
}

void comm_trace(struct winnow_comm *comm, const struct allreduce *task)
{
	if (session_state(comm->session) != SESSION_RUNNING)
		return;
	if (!comm->trace_tried)
		begin_by_environment(comm);
	/* For a tensor on a GPU comm_trace_viewed() follows, unless the operation predates the trace. */
	if (comm->trace != NULL && task->access != &staging_access)
		trace_operation(comm->trace, task);
	path_publish(comm);
}

void comm_trace_viewed(void *context, const struct geometry_part *part, uint32_t fine,
                       const uint64_t *bits)
{
	const struct winnow_request *request = context;
	struct winnow_comm *comm = request->comm;

	/* The trace that wanted this bitmap may have ended, and another may have begun. */
	if (comm->trace == NULL || trace_fine(comm->trace) != fine)
		return;
	if (bits == NULL)
		trace_lacks_memory(comm->trace);
	else
		trace_bitmap(comm->trace, &request->task, part, bits);
	path_publish(comm);
}

void comm_trace_end(struct winnow_comm *comm)
{
	const struct winnow_stats *before = &comm->trace_before;
	struct winnow_stats now;

	if (comm->trace == NULL)
		return;
	session_stats(comm->session, &now);
	trace_close(comm->trace, now.sent_bytes - before->sent_bytes,
	            now.received_bytes - before->received_bytes,
	            now.retransmits - before->retransmits);
	comm->trace = NULL;
	path_publish(comm);
}

void comm_trace_order(struct winnow_comm *comm, const struct trace_request *request,
                      struct trace_answer *answer)
{
	bool writes = comm->trace != NULL && trace_path(comm->trace) != NULL;
	struct trace_config config = {
		.folder = request->folder,
		.limit_bytes = request->limit_bytes,
		.fine = request->fine,
	};
	struct why why = {""};

	if (session_state(comm->session) != SESSION_RUNNING)
		why_set(&why, 0, "its job does not run");
	else if (request->order == TRACE_START && writes)
		why_set(&why, 0, "it is being traced already");
	else if (request->order == TRACE_STOP && !writes)
		why_set(&why, 0, "it is not being traced");
	if (request->order == TRACE_SHOW)
		why.text[0] = '\0';
	else if (why.text[0] == '\0')
		comm_trace_end(comm); /* or what is left of one that was full */
	if (request->order == TRACE_START && why.text[0] == '\0') {
		(void)trace_begin(comm, &config, &why);
		path_publish(comm);
	}
	*answer = (struct trace_answer){
		.pid = (uint32_t)getpid(), .rank = comm->rank, .world = comm->world};
	if (comm->trace != NULL)
		answer->operations = trace_operations(comm->trace);
	snprintf(answer->job, sizeof(answer->job), "%.*s", (int)message_name_base(comm->job),
	         comm->job);
	snprintf(answer->path, sizeof(answer->path), "%s", comm->trace_path);
	snprintf(answer->error, sizeof(answer->error), "%s", why.text);
}
