// SPDX-License-Identifier: BSD-3-Clause
/* comm_gpu.c - operations on the memory of GPUs: callers' streams, failures, whom nobody waits for */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/comm.h"
#include "client/gpu_plugin.h"

#define CHECK_US 50000 /* between looks at a GPU that has something to do: failures wake nobody */
#define DRAIN_US 2000  /* and at one that has failed, and may have something to do */

/*
 * Operations for which streams may be made to wait at a time. A queue of the device holds about a
 * thousand entries, and one operation takes about twenty; who fills it has all calls of CUDA wait until
 * there is room, those of our thread, too, and without these no operation ends.
 */
#define AHEAD_MAX 32

/* What this communicator has on one GPU. */
struct comm_gpu {
	struct staging *staging;
	int device;
	struct comm_gpu *next;
};

bool comm_gpu_wanted(const struct winnow_options *options)
{
	return options != NULL && options->memory == WINNOW_MEMORY_CUDA;
}

/* ---- submitting ---- */

/* The GPU has failed in a caller's thread: the job ends. What is impossible here does no harm. */
static int failed(struct winnow_comm *comm, int err, const char *why)
{
	if (err == -ENOMEM)
		return comm_fail(WINNOW_ERR_MEMORY, why);
	if (err != -EIO)
		return comm_fail(WINNOW_ERR_INVALID, why);
	comm_end(comm, WINNOW_ERR_GPU, why);
	return comm_fail(WINNOW_ERR_GPU, why);
}

/* Whose memory it is. */
static int find(const struct gpu_calls *calls, const struct allreduce *task, int *device, char *why)
{
	int other, err;

	/* Of nothing, where it is; if nowhere, where this thread is. */
	if (task->count == 0 && (task->send == NULL || calls->locate(task->send, device, why) != 0))
		return calls->locate(NULL, device, why);
	if (task->count == 0)
		return 0;
	err = calls->locate(task->send, device, why);
	if (err == 0)
		err = calls->locate(task->recv, &other, why);
	if (err == 0 && *device != other) {
		snprintf(why, GPU_WHY_BYTES, "the buffers are on two GPUs, %d and %d", *device,
		         other);
		err = -EINVAL;
	}
	return err;
}

static int admit(const struct allreduce *task, const struct winnow_options *options,
                 const struct gpu_calls **calls, int *device, char *why)
{
	int err = gpu_plugin_open(calls, why);

	if (err == 0)
		err = find(*calls, task, device, why);
	return err != 0 ? err : (*calls)->admit(*device, options->stream, why);
}

int comm_gpu_admit(struct winnow_comm *comm, const struct allreduce *task,
                   const struct winnow_options *options)
{
	const struct gpu_calls *calls;
	char why[GPU_WHY_BYTES];
	int device, result = winnow_comm_check(comm), err;

	if (result != WINNOW_OK)
		return result;
	err = admit(task, options, &calls, &device, why);
	return err == 0 ? WINNOW_OK : failed(comm, err, why);
}

/* Not further ahead: until an earlier operation is done, or the communicator. */
static int get_ahead(struct winnow_request *request)
{
	struct winnow_comm *comm = request->comm;

	pthread_mutex_lock(&comm->lock);
	while (comm->gpu_ahead >= AHEAD_MAX && comm->state == SESSION_RUNNING &&
	       comm->abort_result == WINNOW_OK)
		pthread_cond_wait(&comm->changed, &comm->lock);
	comm->gpu_ahead++;
	request->ahead = true;
	pthread_mutex_unlock(&comm->lock);
	return winnow_comm_check(comm);
}

static void fall_back(struct winnow_request *request)
{
	struct winnow_comm *comm = request->comm;

	if (!request->ahead)
		return;
	request->ahead = false;
	pthread_mutex_lock(&comm->lock);
	if (comm->gpu_ahead-- >= AHEAD_MAX)
		pthread_cond_broadcast(&comm->changed);
	pthread_mutex_unlock(&comm->lock);
}

/* The thread: an operation's work on the GPU is done, or will never be. */
static void passed(void *context, bool there)
{
	struct winnow_request *request = context;

	request->staged_bytes = staging_bytes(request->staged);
	fall_back(request);
	/* The GPU has failed after the last sums had come. */
	if (!there && request->task.status == WINNOW_OK)
		request->task.status = WINNOW_ERR_GPU;
	comm_complete(request);
}

static void wake(void *context)
{
	comm_wake(context);
}

static void failing(void *context, const char *why)
{
	struct winnow_comm *comm = context;

	comm_end(comm, WINNOW_ERR_GPU, why);
	if (comm->failing != NULL)
		comm->failing(comm->failing_context, WINNOW_ERR_GPU, why);
}

static int gpu_for(struct winnow_comm *comm, const struct gpu_calls *calls, int device,
                   struct comm_gpu **out, char *why)
{
	struct staging_config config = {
		.calls = calls,
		.device = device,
		.world = comm->world,
		.shard_count = comm->channels,
		.payload = comm->payload,
		.op_slots = comm->op_slots,
		.wake = wake,
		.passed = passed,
		.viewed = comm_trace_viewed,
		.failing = failing,
		.context = comm,
	};
	struct comm_gpu *gpu;
	int err = 0;

	pthread_mutex_lock(&comm->gpu_lock);
	for (gpu = atomic_load(&comm->gpus); gpu != NULL && gpu->device != device; gpu = gpu->next)
		;
	if (gpu == NULL) {
		gpu = calloc(1, sizeof(*gpu));
		err = gpu != NULL ? staging_open(&config, &gpu->staging, why) : -ENOMEM;
		if (err == 0) {
			gpu->device = device;
			gpu->next = atomic_load(&comm->gpus);
			atomic_store(&comm->gpus, gpu);
		} else {
			free(gpu);
			gpu = NULL;
		}
	}
	*out = gpu;
	pthread_mutex_unlock(&comm->gpu_lock);
	return err;
}

int comm_gpu_open(struct winnow_comm *comm, int device, bool *can_wait)
{
	const struct gpu_calls *calls;
	char why[GPU_WHY_BYTES] = "out of memory";
	struct comm_gpu *gpu;
	int err = gpu_plugin_open(&calls, why);

	if (err == 0)
		err = gpu_for(comm, calls, device, &gpu, why);
	if (err != 0)
		return failed(comm, err, why);
	*can_wait = staging_can_wait(gpu->staging);
	return WINNOW_OK;
}

int comm_gpu_post(struct winnow_request *request, const struct winnow_options *options)
{
	struct winnow_comm *comm = request->comm;
	struct allreduce *task = &request->task;
	struct staging_post what = {
		.count = task->count,
		.block_elems = task->block_elems,
		.elem_bytes = dtype_bytes((enum dtype)task->dtype),
		.stream = options->stream,
		.stream_waits = !options->stream_goes_on,
		.context = request,
		.fine = atomic_load(&comm->trace_fine),
	};
	const struct gpu_calls *calls;
	char why[GPU_WHY_BYTES] = "out of memory";
	struct comm_gpu *gpu;
	int device, err, result = winnow_comm_check(comm);

	if (result != WINNOW_OK)
		return result;
	err = admit(task, options, &calls, &device, why);
	if (err == 0 && what.stream_waits) {
		result = get_ahead(request);
		if (result != WINNOW_OK) {
			fall_back(request);
			return result;
		}
	}
	if (err == 0)
		err = gpu_for(comm, calls, device, &gpu, why);
	if (err == 0)
		err = staging_post(gpu->staging, &what, &request->staged, why);
	if (err != 0) {
		fall_back(request);
		return failed(comm, err, why);
	}
	task->access = &staging_access;
	task->access_state = request->staged;
	return WINNOW_OK;
}

/* ---- what is under way ---- */

/* The caller's stream waits; where it cannot, the caller does. */
static int wait_for(struct winnow_request *request, void *stream)
{
	struct winnow_comm *comm = request->comm;
	char why[GPU_WHY_BYTES];
	int err = staging_wait(request->staged, stream, why);

	if (err == 0)
		return WINNOW_OK;
	if (err != -EAGAIN)
		return failed(comm, err, why);
	pthread_mutex_lock(&comm->lock);
	while (!request->done)
		pthread_cond_wait(&request->changed, &comm->lock);
	pthread_mutex_unlock(&comm->lock);
	return WINNOW_OK;
}

int comm_gpu_wait(struct winnow_request *request, const struct winnow_options *options)
{
	if (!comm_gpu_wanted(options) || options->stream_goes_on)
		return WINNOW_OK;
	return wait_for(request, options->stream);
}

const char *comm_wrong_request(const struct winnow_options *options, bool has_request)
{
	if (has_request)
		return NULL;
	if (!comm_gpu_wanted(options))
		return "request is NULL: nobody would know when the operation is done";
	return options->stream_goes_on ? "request is NULL and the stream goes on: nobody would "
	                                 "know when the operation is done"
	                               : NULL;
}

int winnow_allreduce_cuda(const void *send, void *recv, uint64_t count, enum winnow_dtype dtype,
                          enum winnow_op op, struct winnow_comm *comm, void *stream)
{
	struct winnow_options options = {.memory = WINNOW_MEMORY_CUDA, .stream = stream};

	return winnow_allreduce_async(send, recv, count, dtype, op, &options, comm, NULL);
}

/* ---- the communicator's thread ---- */

bool comm_gpu_turn(struct winnow_comm *comm, uint64_t now_us)
{
	bool any = false, check = now_us >= comm->gpu_check_us;

	for (struct comm_gpu *gpu = atomic_load(&comm->gpus); gpu != NULL; gpu = gpu->next) {
		const char *error = staging_error(gpu->staging);

		if (check)
			(void)staging_check(gpu->staging);
		if (error[0] != '\0')
			session_fail(comm->session, WINNOW_ERR_GPU, error);
		if (staging_turn(gpu->staging))
			any = true;
	}
	if (check)
		comm->gpu_check_us =
			now_us +
			(session_state(comm->session) == SESSION_RUNNING ? CHECK_US : DRAIN_US);
	return any;
}

uint64_t comm_gpu_due_us(const struct winnow_comm *comm)
{
	uint64_t due_us = UINT64_MAX;

	for (struct comm_gpu *gpu = atomic_load(&comm->gpus); gpu != NULL; gpu = gpu->next) {
		if (staging_error(gpu->staging)[0] != '\0' &&
		    session_state(comm->session) == SESSION_RUNNING)
			return 0;
		if (!staging_idle(gpu->staging))
			due_us = comm->gpu_check_us;
	}
	return due_us;
}

bool comm_gpu_idle(const struct winnow_comm *comm)
{
	for (struct comm_gpu *gpu = atomic_load(&comm->gpus); gpu != NULL; gpu = gpu->next)
		if (!staging_idle(gpu->staging))
			return false;
	return true;
}

void comm_gpu_close(struct winnow_comm *comm)
{
	struct comm_gpu *next;

	for (struct comm_gpu *gpu = atomic_load(&comm->gpus); gpu != NULL; gpu = next) {
		next = gpu->next;
		staging_close(gpu->staging);
		free(gpu);
	}
}
