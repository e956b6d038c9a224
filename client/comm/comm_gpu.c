// SPDX-License-Identifier: BSD-3-Clause
/* comm_gpu.c - operations on the memory of GPUs: the callers' side and the thread's polling */

#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "client/comm/comm_state.h"

#define CHECK_US 50000 /* between checks of a busy GPU, because a failure wakes no thread */
#define POLL_US_MIN 20 /* between polls of a GPU's words and of callers' marks */
#define POLL_US_MAX 1000

/* The next GPU in use, from number *device on; NULL: there is none. */
static struct staging *next_gpu(const struct winnow_comm *comm, uint32_t *device)
{
	struct staging *found = NULL;

	while (found == NULL && *device < COMM_DEVICES_MAX)
		found = atomic_load_explicit(&comm->any.gpus[(*device)++], memory_order_acquire);
	return found;
}

bool comm_gpu_wanted(const struct winnow_options *options)
{
	return options != NULL && options->memory == WINNOW_MEMORY_CUDA;
}

int comm_gpu_calls(const struct gpu_calls **out, struct why *why)
{
	static _Atomic(const void *) opened;
	const void *table = atomic_load(&opened);
	int err = 0;

	if (table == NULL)
		err = net_plugin_open("cuda", secure_getenv("WINNOW_CUDA_PLUGIN"),
		                      GPU_PLUGIN_SYMBOL, &table, why);
	if (err == 0)
		atomic_store(&opened, table);
	*out = table;
	return err;
}

/* ---- submitting ---- */

int comm_gpu_result(struct winnow_comm *comm, int err, const struct why *why)
{
	if (err == -EIO && comm != NULL)
		comm_end(comm, WINNOW_ERR_GPU, why->text);
	if (err == 0)
		return WINNOW_OK;
	return comm_fail(err == -EIO         ? WINNOW_ERR_GPU
	                 : err == -ENOMEM    ? WINNOW_ERR_MEMORY
	                 : err == -ECANCELED ? WINNOW_ERR_TIMEOUT
	                 : err == -ESTALE    ? WINNOW_ERR_MEMBERS
	                                     : WINNOW_ERR_INVALID,
	                 why->text);
}

int comm_gpu_find(const struct gpu_calls *calls, const struct allreduce *task, int *device,
                  struct why *why)
{
	int other, err = calls->locate(task->send, device, why);

	if (err == 0)
		err = calls->locate(task->recv, &other, why);
	if (err == 0 && *device != other)
		err = why_set(why, -EINVAL, "the buffers are on two GPUs, %d and %d", *device,
		              other);
	return err;
}

/* The thread calls it. A GPU that fails after the last sums have arrived has also failed the operation. */
static void staging_passed(void *context, bool there)
{
	struct winnow_request *request = context;

	if (!there && request->task.status == WINNOW_OK)
		request->task.status = WINNOW_ERR_GPU;
	comm_complete(request);
}

/* Opens the GPU unless it is open, if the membership of this number runs. */
static int gpu_for(struct winnow_comm *comm, const struct gpu_calls *calls, int device,
                   uint32_t membership, struct staging **out, struct why *why)
{
	struct staging_config config = {
		.calls = calls,
		.device = device,
		.pinned_bytes = (uint64_t)comm->fixed.config.staging_mb << 20,
		.pinned_max = comm->fixed.config.memory_mb > comm->fixed.config.staging_mb
	                              ? (uint64_t)comm->fixed.config.memory_mb << 20
	                              : (uint64_t)comm->fixed.config.staging_mb << 20,
		.passed = staging_passed,
		.viewed = comm_trace_viewed,
	};
	struct staging *gpu;
	int err = 0;

	if (device < 0 || device >= COMM_DEVICES_MAX)
		return why_set(why, -EINVAL, "GPU %d: only the first %d may be used", device,
		               COMM_DEVICES_MAX);
	pthread_mutex_lock(&comm->any.gpu_lock);
	pthread_mutex_lock(&comm->shared.lock);
	config.world = comm->shared.view.world;
	config.shape = comm->shared.shape;
	if (!comm_runs(comm, membership))
		err = why_set(why, -ESTALE, "%s", comm_moves);
	pthread_mutex_unlock(&comm->shared.lock);
	gpu = atomic_load(&comm->any.gpus[device]);
	if (err == 0 && gpu == NULL) {
		err = staging_open(&config, &gpu, why);
		if (err == 0)
			atomic_fetch_add(&comm->any.pinned_bytes, staging_pinned_bytes(gpu));
	}
	if (err == 0) {
		atomic_store(&comm->any.gpus[device], gpu);
		*out = gpu;
	}
	pthread_mutex_unlock(&comm->any.gpu_lock);
	return err;
}

int comm_gpu_open(struct winnow_comm *comm, int device)
{
	const struct gpu_calls *calls;
	struct staging *ignored;
	struct why why;
	int err = comm_gpu_calls(&calls, &why);

	if (err == 0)
		err = gpu_for(comm, calls, device, comm_view(comm).number, &ignored, &why);
	return comm_gpu_result(comm, err, &why);
}

int comm_gpu_post(struct winnow_request *request, const struct winnow_options *options)
{
	struct winnow_comm *comm = request->comm;
	const struct gpu_calls *calls;
	struct staged *staged = &request->staged;
	struct why why;
	int device, result = winnow_comm_check(comm), err;

	if (result != WINNOW_OK)
		return result;
	staged->context = request;
	staged->fine = atomic_load(&comm->any.trace_fine);
	err = comm_gpu_calls(&calls, &why);
	if (err == 0)
		err = comm_gpu_find(calls, &request->task, &device, &why);
	if (err == 0)
		err = gpu_for(comm, calls, device, request->membership, &staged->staging, &why);
	if (err == 0)
		err = calls->mark(device, options->stream, &staged->mark, &why);
	if (err != 0)
		return comm_gpu_result(comm, err, &why);
	request->task.access = &staging_access;
	request->task.access_state = staged;
	return WINNOW_OK;
}

void comm_gpu_forget(struct winnow_request *request)
{
	const struct gpu_calls *calls;
	struct why why;

	if (request->staged.mark != NULL && comm_gpu_calls(&calls, &why) == 0)
		calls->unmark(request->staged.mark);
	request->staged.mark = NULL;
}

int winnow_stream_wait(struct winnow_request *request, void *stream)
{
	struct staging *staging;
	struct why why;
	int done, err = -EINVAL, result = winnow_test(request, &done, NULL);

	if (result != WINNOW_OK || request->task.count == 0)
		return result;
	pthread_mutex_lock(&request->comm->any.gpu_lock);
	staging = request->staged.staging;
	if (staging == NULL)
		why_set(&why, 0, "the operation was on no GPU's memory");
	else if (!done)
		why_set(&why, 0, "the operation is not done: no stream may wait for the network");
	else
		err = staging_follow(staging, stream, &why);
	pthread_mutex_unlock(&request->comm->any.gpu_lock);
	return comm_gpu_result(request->comm, err, &why);
}

/* ---- the communicator's thread ---- */

bool comm_gpu_turn(struct winnow_comm *comm, uint64_t now_us)
{
	bool any = false, check = now_us >= comm->run.gpu_check_us;
	struct staging *gpu;

	for (uint32_t at = 0; (gpu = next_gpu(comm, &at)) != NULL;) {
		if (staging_error(gpu)[0] != '\0')
			session_fail(comm->session, WINNOW_ERR_GPU, staging_error(gpu));
		any = staging_turn(gpu, check) || any;
	}
	if (check)
		comm->run.gpu_check_us = now_us + CHECK_US;
	if (any)
		comm->run.gpu_moved_us = now_us;
	return any;
}

unsigned comm_gpu_state(const struct winnow_comm *comm)
{
	const struct staging *gpu;
	unsigned state = 0;

	for (uint32_t at = 0; (gpu = next_gpu(comm, &at)) != NULL;)
		state |= staging_state(gpu);
	return state;
}

/* The longer nothing has happened, the longer the thread sleeps. */
uint64_t comm_gpu_due_us(struct winnow_comm *comm)
{
	uint64_t now_us = clock_us(), wait_us = (now_us - comm->run.gpu_moved_us) / 8;
	unsigned state = comm_gpu_state(comm);

	if ((state & STAGING_WAITS) == 0)
		return (state & STAGING_BUSY) != 0 ? comm->run.gpu_check_us : UINT64_MAX;
	/* The thread's timer slack would lengthen such short sleeps. */
	(void)prctl(PR_SET_TIMERSLACK, 1000);
	wait_us = wait_us > POLL_US_MAX ? POLL_US_MAX : wait_us;
	return now_us + (wait_us < POLL_US_MIN ? POLL_US_MIN : wait_us);
}

void comm_gpu_close(struct winnow_comm *comm)
{
	pthread_mutex_lock(&comm->any.gpu_lock);
	pthread_mutex_lock(&comm->shared.lock);
	for (struct winnow_request *r = comm->shared.requests; r != NULL; r = r->made_before)
		r->staged.staging = NULL; /* winnow_stream_wait() refuses then */
	pthread_mutex_unlock(&comm->shared.lock);
	for (uint32_t device = 0; device < COMM_DEVICES_MAX; device++)
		staging_close(atomic_exchange(&comm->any.gpus[device], NULL));
	atomic_store(&comm->any.pinned_bytes, 0);
	pthread_mutex_unlock(&comm->any.gpu_lock);
}
