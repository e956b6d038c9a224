// SPDX-License-Identifier: BSD-3-Clause
/* comm_look.c - the public calls that only look: errors, statistics, versions */

#include <stdio.h>

#include "client/comm/comm.h"

static _Thread_local char error_copy[COMM_ERROR_BYTES];

const char *winnow_strerror(int result)
{
	static const char *const texts[] = {
		[WINNOW_OK] = "no error",
		[WINNOW_ERR_INVALID] = "an argument is impossible",
		[WINNOW_ERR_MEMORY] = "out of memory",
		[WINNOW_ERR_SYSTEM] = "the system refused a socket or a thread",
		[WINNOW_ERR_UNREACHABLE] = "no aggregator answers",
		[WINNOW_ERR_REFUSED] = "the aggregator refused this worker",
		[WINNOW_ERR_MISMATCH] = "workers do not agree on the operation",
		[WINNOW_ERR_LOST] = "a worker or an aggregator is lost",
		[WINNOW_ERR_ABORTED] = "the job was aborted",
		[WINNOW_ERR_TIMEOUT] = "timed out",
		[WINNOW_ERR_BUSY] = "an operation with this tag is under way",
		[WINNOW_ERR_PROTOCOL] = "not a Winnow aggregator",
		[WINNOW_ERR_GPU] = "the GPU or its driver failed",
	};

	if (result < 0 || result > WINNOW_ERR_GPU)
		return "unknown error";
	return texts[result];
}

int winnow_comm_check(struct winnow_comm *comm)
{
	char why[COMM_ERROR_BYTES];
	int result = WINNOW_OK;

	pthread_mutex_lock(&comm->lock);
	if (comm->state == SESSION_FAILED) {
		result = (int)comm->result;
		snprintf(why, sizeof(why), "%s", comm->error);
	} else if (comm->abort_result != WINNOW_OK) { /* the thread is about to */
		result = (int)comm->abort_result;
		snprintf(why, sizeof(why), "%s", comm->abort_text);
	}
	pthread_mutex_unlock(&comm->lock);
	return result == WINNOW_OK ? WINNOW_OK : comm_fail(result, why);
}

const char *winnow_comm_error(struct winnow_comm *comm)
{
	pthread_mutex_lock(&comm->lock);
	snprintf(error_copy, sizeof(error_copy), "%s", comm->error);
	pthread_mutex_unlock(&comm->lock);
	return error_copy;
}

void winnow_comm_stats(struct winnow_comm *comm, struct winnow_stats *stats)
{
	pthread_mutex_lock(&comm->lock);
	comm->stats_wanted = true;
	comm_wake(comm);
	while (comm->stats_wanted)
		pthread_cond_wait(&comm->changed, &comm->lock);
	*stats = comm->stats;
	pthread_mutex_unlock(&comm->lock);
}

uint32_t winnow_comm_rank(const struct winnow_comm *comm)
{
	return comm->rank;
}

uint32_t winnow_comm_world(const struct winnow_comm *comm)
{
	return comm->world;
}

const char *winnow_version(void)
{
	return WINNOW_VERSION;
}

int winnow_abi_version(void)
{
	return WINNOW_ABI_VERSION;
}
