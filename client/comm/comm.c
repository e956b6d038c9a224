// SPDX-License-Identifier: BSD-3-Clause
/* comm.c - a communicator's life, from winnow_comm_create() to its end */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/comm/comm_state.h"

static void free_all(struct winnow_comm *comm)
{
	comm_fork_remove(comm);
	comm_gpu_close(comm);
	comm_requests_free(comm);
	comm_trace_end(comm);
	session_close(comm->session);
	bitmap_pool_close(comm->fixed.pool);
	comm->fixed.backend->close(comm->fixed.net);
	free(comm->fixed.scratch);
	free(comm->move.members);
	if (comm->fixed.wake_fd >= 0)
		close(comm->fixed.wake_fd);
	pthread_mutex_destroy(&comm->move.lock);
	pthread_mutex_destroy(&comm->any.gpu_lock);
	pthread_mutex_destroy(&comm->shared.lock);
	pthread_cond_destroy(&comm->shared.changed);
	for (uint32_t i = 0; i < comm->fixed.peers_known; i++)
		comm_peer_close(&comm->peers[i]);
	tls_context_close(comm->fixed.tls);
	explicit_bzero(&comm->fixed.key, sizeof(comm->fixed.key));
	free(comm);
}

static int create(const struct winnow_config *config, bool newcomer, struct winnow_comm *comm,
                  struct why *why)
{
	int result = comm_configure(comm, config, why);

	if (newcomer) {
		comm->any.holds = false;
		comm->move.role = COMM_NEWCOMER;
		comm_leave_out(comm, UINT64_MAX);
	}
	if (result == WINNOW_OK)
		result = comm_open_session(comm, NULL, why);
	if (result == WINNOW_OK) {
		comm->fixed.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (comm->fixed.wake_fd < 0)
			return why_set(why, WINNOW_ERR_SYSTEM, "cannot make an eventfd: %s",
			               strerror(errno));
		comm_trace_open(comm);
		result = comm_start_thread(comm, why);
	}
	if (result != WINNOW_OK)
		return result;
	return newcomer ? comm_enter(comm, config->give_up, why)
	                : comm_await_all(comm, config->give_up, why);
}

static int make(const struct winnow_config *config, bool newcomer, struct winnow_comm **out)
{
	struct winnow_comm *comm = calloc(1, sizeof(*comm));
	struct why why = {""};
	int result;

	*out = NULL;
	if (comm == NULL)
		return comm_fail(WINNOW_ERR_MEMORY, "out of memory");
	comm->fixed.wake_fd = -1;
	for (uint32_t i = 0; i < SESSION_LINKS_MAX; i++)
		comm->peers[i].tcp.fd = -1;
	comm->fixed.backend = &net_udp;
	STAILQ_INIT(&comm->shared.submitted);
	STAILQ_INIT(&comm->shared.unused);
	pthread_mutex_init(&comm->shared.lock, NULL);
	pthread_mutex_init(&comm->any.gpu_lock, NULL);
	pthread_mutex_init(&comm->move.lock, NULL);
	comm_cond_init(&comm->shared.changed);
	comm_fork_add(comm);
	result = create(config, newcomer, comm, &why);
	if (result == WINNOW_OK) {
		*out = comm;
		return WINNOW_OK;
	}
	comm_stop_thread(comm, COMM_ENDS);
	free_all(comm);
	return comm_fail(result, why.text);
}

int winnow_comm_create(const struct winnow_config *config, struct winnow_comm **out)
{
	return make(config, false, out);
}

int winnow_comm_enter(const struct winnow_config *config, struct winnow_comm **out)
{
	struct winnow_config alone = *config;

	alone.world = alone.rank + 1;
	return make(&alone, true, out);
}

void winnow_comm_destroy(struct winnow_comm *comm)
{
	if (comm == NULL || comm->inherited)
		return; /* A fork's child has no thread to stop. */
	comm_stop_thread(comm, COMM_ENDS);
	free_all(comm);
}

void winnow_comm_exit(int status, void *comm)
{
	struct winnow_comm *ours = comm;
	char why[64];

	if (ours == NULL || ours->inherited)
		return;
	snprintf(why, sizeof(why), "it ended with exit status %d", status);
	if (status != 0)
		winnow_comm_abort(ours, why);
	winnow_comm_destroy(ours);
}

void winnow_comm_abort(struct winnow_comm *comm, const char *text)
{
	comm_end(comm, WINNOW_ERR_ABORTED, text != NULL ? text : "no reason given");
}
