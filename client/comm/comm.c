// SPDX-License-Identifier: BSD-3-Clause
/* comm.c - the public calls of winnow.h */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/comm/comm.h"

/* ---- life ---- */

static void free_all(struct winnow_comm *comm)
{
	comm_fork_remove(comm);
	comm_requests_free(comm);
	comm_gpu_close(comm);
	comm_trace_end(comm);
	session_close(comm->session);
	bitmap_pool_close(comm->pool);
	comm->backend->close(comm->net);
	free(comm->scratch);
	free(comm->members);
	if (comm->wake_fd >= 0)
		close(comm->wake_fd);
	pthread_mutex_destroy(&comm->gpu_lock);
	pthread_mutex_destroy(&comm->lock);
	pthread_cond_destroy(&comm->changed);
	explicit_bzero(&comm->key, sizeof(comm->key));
	free(comm);
}

int comm_start_thread(struct winnow_comm *comm, struct why *why)
{
	int err = comm_thread_start(&comm->thread, comm_run, comm);

	if (err != 0)
		return why_set(why, WINNOW_ERR_SYSTEM, "cannot start a thread: %s", strerror(err));
	comm->thread_started = true;
	return WINNOW_OK;
}

void comm_stop_thread(struct winnow_comm *comm)
{
	if (!comm->thread_started)
		return;
	pthread_mutex_lock(&comm->lock);
	comm->stop = true;
	pthread_mutex_unlock(&comm->lock);
	comm_wake(comm);
	pthread_join(comm->thread, NULL);
	comm->thread_started = false;
}

int comm_await_all(struct winnow_comm *comm, const volatile int *give_up, struct why *why)
{
	struct comm_wait wait = {.began_us = clock_us()};
	int result = WINNOW_OK;

	pthread_mutex_lock(&comm->lock);
	while (comm->state == SESSION_JOINING && !comm_given_up(give_up))
		comm_wait_turn(comm, &wait);
	if (comm->state == SESSION_JOINING) {
		result = why_set(why, WINNOW_ERR_ABORTED, "given up before all workers had joined");
	} else if (comm->state == SESSION_FAILED) {
		result = (int)comm->result;
		*why = comm->error;
	}
	pthread_mutex_unlock(&comm->lock);
	if (result == WINNOW_OK)
		comm_tell_joined(comm);
	return result;
}

static int create(const struct winnow_config *config, bool newcomer, struct winnow_comm *comm,
                  struct why *why)
{
	int result = comm_configure(comm, config, why);

	if (newcomer) {
		comm->world = 0;
		comm->voice = (struct session_voice){0};
	}
	if (result == WINNOW_OK)
		result = comm_open_session(comm, why);
	if (result == WINNOW_OK) {
		comm->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (comm->wake_fd < 0)
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
	comm->wake_fd = -1;
	for (uint32_t i = 0; i < SESSION_LINKS_MAX; i++)
		comm->peers[i].fd = -1;
	comm->backend = &net_udp;
	STAILQ_INIT(&comm->submitted);
	STAILQ_INIT(&comm->unused);
	pthread_mutex_init(&comm->lock, NULL);
	pthread_mutex_init(&comm->gpu_lock, NULL);
	comm_cond_init(&comm->changed);
	comm_fork_add(comm);
	result = create(config, newcomer, comm, &why);
	if (result == WINNOW_OK) {
		*out = comm;
		return WINNOW_OK;
	}
	comm_stop_thread(comm);
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
		return; /* in a fork's child, where the thread does not exist */
	comm_stop_thread(comm);
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

/* ---- operations ---- */

#define BROADCAST_HASHED UINT64_C(0x7473616364616f72) /* no other kind of operation hashes it */

int winnow_allreduce_async(const void *send, void *recv, uint64_t count, enum winnow_dtype dtype,
                           enum winnow_op op, const struct winnow_options *options,
                           struct winnow_comm *comm, struct winnow_request **out)
{
	return winnow_allreduce_segments_async(send, recv, count, dtype, op, NULL, 0, options, comm,
	                                       out);
}

int comm_finish(int result, struct winnow_request *request)
{
	if (result == WINNOW_OK)
		result = winnow_wait(request, -1, NULL);
	winnow_request_free(&request);
	return result;
}

int winnow_allreduce(const void *send, void *recv, uint64_t count, enum winnow_dtype dtype,
                     enum winnow_op op, struct winnow_comm *comm)
{
	struct winnow_request *request;
	int result = winnow_allreduce_async(send, recv, count, dtype, op, NULL, comm, &request);

	return comm_finish(result, request);
}

int winnow_reduce_scatter_async(const void *send, void *recv, uint64_t recv_count,
                                enum winnow_dtype dtype, enum winnow_op op,
                                const struct winnow_options *options, struct winnow_comm *comm,
                                struct winnow_request **out)
{
	struct allreduce task = {
		.send = send,
		.recv = recv,
		.count = recv_count * comm->world,
		.dtype = COMM_ENUM(dtype),
		.reduction = COMM_ENUM(op),
		.scatter = true,
		.share_first = recv_count * comm->rank,
		.share_count = recv_count,
		.access = &array_access,
	};
	const char *wrong;

	if (recv_count > (UINT64_C(1) << 48) / comm->world)
		wrong = "recv_count times the number of workers is above 2^48";
	else
		wrong = comm_wrong_argument(&task, options);
	if (wrong == NULL && !(comm->shape.features & CONTROL_SCATTER))
		wrong = "the job has no reduce_scatter: another worker, or an aggregator, does not "
			"know it";
	if (wrong == NULL && options != NULL && options->memory != WINNOW_MEMORY_HOST)
		wrong = "reduce_scatter takes no tensors on a GPU: copy them to the host's memory";
	return comm_allreduce(comm, &task, wrong, NULL, 0, options, out);
}

int winnow_reduce_scatter(const void *send, void *recv, uint64_t recv_count,
                          enum winnow_dtype dtype, enum winnow_op op, struct winnow_comm *comm)
{
	struct winnow_request *request;
	int result = winnow_reduce_scatter_async(send, recv, recv_count, dtype, op, NULL, comm,
	                                         &request);

	return comm_finish(result, request);
}

int winnow_broadcast_async(void *data, uint64_t bytes, uint32_t root,
                           const struct winnow_options *options, struct winnow_comm *comm,
                           struct winnow_request **out)
{
	/* Words of the root's, to which nobody adds anything, come out with every bit as it was. */
	struct allreduce task = {
		.send = data,
		.recv = data,
		.count = bytes / 4,
		.dtype = DTYPE_I32,
		.reduction = REDUCE_SUM,
		.agreed = geometry_hash(geometry_hash(GEOMETRY_HASH_FIRST, BROADCAST_HASHED), root),
		.access = &array_access,
	};
	const char *wrong = comm_wrong_argument(&task, options);

	if (wrong == NULL && bytes % 4 != 0)
		wrong = "bytes is no multiple of 4";
	if (wrong == NULL && root >= comm->world)
		wrong = "there is no such root";
	if (wrong == NULL && options != NULL && options->memory != WINNOW_MEMORY_HOST)
		wrong = "broadcast takes no tensors on a GPU: copy them to the host's memory";
	if (root != comm->rank)
		task.send = NULL;
	return comm_allreduce(comm, &task, wrong, NULL, 0, options, out);
}

int winnow_broadcast(void *data, uint64_t bytes, uint32_t root, struct winnow_comm *comm)
{
	struct winnow_request *request;
	int result = winnow_broadcast_async(data, bytes, root, NULL, comm, &request);

	return comm_finish(result, request);
}

int winnow_allreduce_cuda(const void *send, void *recv, uint64_t count, enum winnow_dtype dtype,
                          enum winnow_op op, struct winnow_comm *comm, void *stream,
                          struct winnow_request **out)
{
	struct winnow_options options = {.memory = WINNOW_MEMORY_CUDA, .stream = stream};
	struct winnow_request *request;
	int result = winnow_allreduce_async(send, recv, count, dtype, op, &options, comm,
	                                    out != NULL ? out : &request);

	return out != NULL ? result : comm_finish(result, request);
}
