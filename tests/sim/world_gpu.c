// SPDX-License-Identifier: BSD-3-Clause
/*
 * world_gpu.c - workers whose tensors are on a GPU: staging.c with a GPU of plain loops
 *
 * Work takes a random time and happens at its end. From when it is asked for until then, what it will
 * write is garbage; so whoever looks early finds that, and whoever changes early what it reads, too. Works of a
 * stream happen in order, those of two streams in any.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/plain_gpu.h"
#include "tests/sim/world_impl.h"

enum { STREAM_SCAN, STREAM_OUT, STREAM_IN, STREAMS };
#define GARBAGE 0xee
#define CHECK_US 50000

struct work {
	uint64_t due_us;
	uint32_t stream;
	struct gpu_scan scan; /* of STREAM_SCAN; */
	struct gpu_copy copy; /* of the others */
	struct gpu_word done;
	struct work *next;
};

/* What is in a caller's stream takes as long as a scan. */
struct gpu_mark {
	uint64_t due_us;
};

struct gpu {
	struct sim_worker *worker;
	struct gpu_memory memory;
	uint64_t free_us[STREAMS]; /* when each has nothing more to do */
	struct work *first;        /* by time, and of the same time by order */
	uint64_t marks_due_us;     /* when to ask again for those that were not due */
};

static struct world *current; /* the table's calls have no place for it */

/* ---- what the GPU does ---- */

/* What is first. */
static void perform_next(struct gpu *gpu)
{
	struct work *work = gpu->first;

	gpu->first = work->next;
	if (work->scan.clear != NULL)
		memset(work->scan.clear, 0, work->scan.clear_bytes);
	if (work->stream == STREAM_SCAN)
		plain_scan(&work->scan);
	for (uint32_t i = 0; i < work->copy.run_count; i++)
		for (uint32_t f = 0; f < work->copy.runs[i].count; f++)
			plain_frame(&work->copy.runs[i], work->copy.out,
			            work->copy.runs[i].frame + f);
	__atomic_store_n(work->done.at, work->done.value, __ATOMIC_RELEASE);
	free(work);
}

/* ---- the table ---- */

static uint64_t now_us(void)
{
	return simnet_now(current->net);
}

static int check(struct gpu *gpu, struct why *why)
{
	struct sim_worker *w = gpu->worker;

	if (!w->gpu_dead)
		return 0;
	if (w->gpu_refused_us == 0)
		w->gpu_refused_us = now_us();
	return why_set(why, -EIO, "its GPU has failed");
}

/* Work that the stream does last, to be filled in; NULL: its GPU has failed. */
static struct work *ask(struct gpu *gpu, uint32_t stream, uint64_t most_us, struct why *why)
{
	uint64_t *free_us = &gpu->free_us[stream];
	struct work **at = &gpu->first, *work;

	if (check(gpu, why) != 0)
		return NULL;
	*free_us = (*free_us > now_us() ? *free_us : now_us()) +
	           simnet_between(current->net, 1, most_us);
	while (*at != NULL && (*at)->due_us <= *free_us)
		at = &(*at)->next;
	work = calloc(1, sizeof(*work));
	*work = (struct work){.due_us = *free_us, .stream = stream, .next = *at};
	*at = work;
	return work;
}

static int is_past(struct gpu *gpu, struct gpu_mark *at, struct why *why)
{
	if (check(gpu, why) != 0)
		return -EIO;
	if (at->due_us <= now_us())
		return 0;
	gpu->marks_due_us = at->due_us < gpu->marks_due_us ? at->due_us : gpu->marks_due_us;
	return 1;
}

static void unmark(struct gpu_mark *at)
{
	free(at);
}

static int gpu_open(int device, struct gpu_memory *memory, struct gpu **out, struct why *why)
{
	struct gpu *gpu = calloc(1, sizeof(*gpu));

	(void)why;
	gpu->worker = &current->workers[device];
	gpu->worker->gpu = gpu;
	memory->pinned.at = aligned_alloc(256, memory->pinned.bytes);
	memory->device.at = aligned_alloc(256, (memory->device.bytes + 255) / 256 * 256);
	memset(memory->pinned.at, 0, memory->pinned.bytes);
	gpu->memory = *memory;
	*out = gpu;
	return 0;
}

static void gpu_close(struct gpu *gpu)
{
	for (struct work *work; (work = gpu->first) != NULL; free(work))
		gpu->first = work->next;
	free(gpu->memory.pinned.at);
	free(gpu->memory.device.at);
	free(gpu);
}

static int gpu_scan(struct gpu *gpu, const struct gpu_scan *scan, struct why *why)
{
	uint64_t blocks = bitmap_block_count(scan->tensor.count, scan->tensor.block_elems);
	struct work *work = ask(gpu, STREAM_SCAN, job_of(gpu->worker)->gpu_scan_us, why);

	if (work == NULL)
		return -EIO;
	work->scan = *scan;
	work->done = scan->done;
	memset(scan->found, GARBAGE, gpu_scan_room(blocks, scan->range_blocks) * 4);
	return 0;
}

static int gpu_copy(struct gpu *gpu, const struct gpu_copy *copy, struct why *why)
{
	const struct job_spec *job = job_of(gpu->worker);
	struct work *work = ask(gpu, copy->out ? STREAM_OUT : STREAM_IN,
	                        copy->out ? job->gpu_out_us : job->gpu_in_us, why);

	if (work == NULL)
		return -EIO;
	work->copy = *copy;
	work->done = copy->done;
	for (uint32_t i = 0; copy->out && i < copy->run_count; i++) {
		const struct gpu_plan *plan = copy->runs[i].plan;

		/* The only frame of one without rings has no more room than it needs. */
		for (uint32_t f = 0; plan->frame_mask != UINT32_MAX && f < copy->runs[i].count; f++)
			memset(plain_place(plan, true, copy->runs[i].frame + f), GARBAGE,
			       plan->frame_stride);
	}
	return 0;
}

static const struct gpu_calls calls = {
	.is_past = is_past,
	.unmark = unmark,
	.open = gpu_open,
	.close = gpu_close,
	.scan = gpu_scan,
	.copy = gpu_copy,
	.check = check,
};

/* ---- what comm_gpu.c does ---- */

static bool within(const struct sim_op *op, size_t bytes, const void *at)
{
	const uint8_t *byte = at;

	return (byte >= op->send && byte < op->send + bytes) ||
	       (byte >= op->recv && byte < op->recv + bytes);
}

/* Will the GPU still read or write a tensor of so many bytes? */
static bool uses(const struct gpu *gpu, const struct sim_op *op, size_t bytes)
{
	for (const struct work *work = gpu->first; work != NULL; work = work->next) {
		if (work->stream == STREAM_SCAN && within(op, bytes, work->scan.tensor.data))
			return true;
		for (uint32_t i = 0; i < work->copy.run_count; i++)
			if (within(op, bytes, work->copy.runs[i].plan->send))
				return true;
	}
	return false;
}

static void passed(void *context, bool there)
{
	struct sim_op *op = context;
	struct sim_worker *w = op->worker;
	const struct op_spec *spec = worker_op(w, (uint32_t)(op - w->ops));
	const size_t bytes = spec->count * data_elem_bytes(spec->dtype);

	if (!there && op->task.status == 0)
		op->task.status = WINNOW_ERR_GPU;
	/* It is the caller's again. */
	if (!w->gpu_dead && uses(w->gpu, op, bytes))
		world_fail(w->world,
		           "job %u rank %u: the GPU has not done with a tensor that is over",
		           w->job, w->rank);
	if (op->send != op->recv)
		memset(op->send, GARBAGE, bytes);
	op_over(op);
}

static void open_gpu(struct sim_worker *w)
{
	struct staging_config config = {
		.calls = &calls,
		.device = (int)(w - w->world->workers),
		.world = job_of(w)->world,
		.shape = session_shape(w->session),
		.pinned_bytes = job_of(w)->gpu_bytes,
		.passed = passed,
	};
	struct why why;

	if (staging_open(&config, &w->staging, &why) != 0)
		abort();
}

void gpu_post(struct sim_worker *w, struct sim_op *op)
{
	current = w->world;
	op->staged = (struct staged){0};
	if (session_state(w->session) != SESSION_RUNNING)
		return; /* as winnow_comm_check() would say; submitting it does, too */
	if (w->staging == NULL)
		open_gpu(w);
	op->staged = (struct staged){.staging = w->staging, .context = op};
	op->staged.mark = calloc(1, sizeof(*op->staged.mark));
	op->staged.mark->due_us =
		now_us() + simnet_between(w->world->net, 0, job_of(w)->gpu_scan_us);
	op->task.access = &staging_access;
	op->task.access_state = &op->staged;
}

bool gpu_turn(struct sim_worker *w)
{
	current = w->world;
	if (w->staging == NULL)
		return false;
	while (!w->gpu_dead && w->gpu->first != NULL && w->gpu->first->due_us <= now_us())
		perform_next(w->gpu);
	w->gpu->marks_due_us = UINT64_MAX;
	if (staging_error(w->staging)[0] != '\0')
		session_fail(w->session, WINNOW_ERR_GPU, staging_error(w->staging));
	if (now_us() < w->gpu_check_us)
		return staging_turn(w->staging, false);
	w->gpu_check_us = now_us() + CHECK_US;
	return staging_turn(w->staging, true);
}

/* When it has finished something; that may also be now, since the last turn. */
uint64_t gpu_due_us(struct sim_worker *w)
{
	struct gpu *gpu = w->gpu;
	uint64_t due_us = UINT64_MAX;
	unsigned state;

	if (w->staging == NULL)
		return UINT64_MAX;
	if (!w->gpu_dead && gpu->first != NULL)
		due_us = gpu->first->due_us;
	if (due_us != UINT64_MAX && simnet_chance(w->world->net, 10000)) {
		perform_next(gpu);
		due_us = now_us();
	}
	state = staging_state(w->staging);
	if (due_us != UINT64_MAX && (state & STAGING_WAITS) == 0)
		world_fail(w->world, "job %u rank %u: nobody waits for what its GPU does", w->job,
		           w->rank);
	if ((state & STAGING_BUSY) != 0 && w->gpu_check_us < due_us)
		due_us = w->gpu_check_us;
	return gpu->marks_due_us < due_us ? gpu->marks_due_us : due_us;
}
