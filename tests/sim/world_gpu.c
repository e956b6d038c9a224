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

#include "ebpf/deal.h"
#include "tests/sim/world_impl.h"

enum { STREAM_SCAN, STREAM_OUT, STREAM_IN, STREAMS };
#define GARBAGE 0xee
#define CHECK_US 50000

struct work {
	uint64_t due_us;
	uint32_t stream;
	enum { WORK_SCAN, WORK_COPY } kind;
	struct gpu_scan scan;
	struct gpu_copy copy;
	struct gpu_run runs[GPU_RUNS_MAX];
	struct work *next;
};

struct gpu {
	struct sim_worker *worker;
	struct gpu_memory memory;
	uint64_t free_us[STREAMS]; /* when each has nothing more to do */
	struct work *first;        /* by time, and of the same time by order */
	uint64_t marks_due_us;     /* when to ask again for those that were not due */
};

static struct world *current; /* the table's calls have no place for it */
static struct sim_worker *opening;
static const struct job_spec *marking;

/* ---- what the GPU does ---- */

static void tell(const struct gpu_word *word)
{
	__atomic_store_n(word->at, word->value, __ATOMIC_RELEASE);
}

static void do_scan(const struct gpu_scan *scan)
{
	const struct bitmap_tensor *tensor = &scan->tensor;
	const struct bitmap_engine *engine = bitmap_named("scalar");
	uint64_t blocks = bitmap_block_count(tensor->count, tensor->block_elems);
	uint64_t *bits = calloc(bitmap_word_count(blocks) + 1, sizeof(*bits));
	const uint32_t *data = tensor->data;

	if (scan->clear != NULL)
		memset(scan->clear, 0, scan->clear_bytes);
	engine->scan(tensor, bits);
	memset(scan->found, 0, gpu_scan_room(blocks, scan->range_blocks) * sizeof(uint32_t));
	memcpy(scan->found, bits, bitmap_word_count(blocks) * sizeof(*bits));
	for (uint64_t i = 0; scan->range_blocks > 0 && i < tensor->count; i++) {
		uint64_t range = i / tensor->block_elems / scan->range_blocks;
		uint32_t *top = scan->found + 2 * bitmap_word_count(blocks) + range;
		uint32_t magnitude = data[i] & INT32_MAX;

		*top = magnitude > *top ? magnitude : *top;
	}
	free(bits);
	tell(&scan->done);
}

static bool bit(const uint64_t *bits, uint32_t number)
{
	return bits[number / 64] >> number % 64 & 1;
}

/* One block's bytes [offset, offset + bytes) between tensor and frame. */
static void copy_part(const struct gpu_plan *plan, bool out, uint64_t block, uint32_t offset,
                      uint32_t bytes, uint8_t *frame)
{
	const struct bitmap_engine *engine = bitmap_named("scalar");
	uint64_t at = block * plan->block_bytes + offset;
	uint64_t left = plan->tensor_bytes > at ? plan->tensor_bytes - at : 0;
	uint32_t have = left < bytes ? (uint32_t)left : bytes;

	if (out) {
		memset(frame, 0, bytes);
		memcpy(frame, plan->send + at, have);
		if (plan->fixed)
			engine->fixed_encode(frame, frame, bytes / 4, DTYPE_I32, plan->shift);
	} else if (plan->fixed) {
		engine->fixed_decode(plan->recv + at, frame, have / 4, DTYPE_I32, plan->shift,
		                     (uint32_t)plan->divisor);
	} else {
		memcpy(plan->recv + at, frame, have);
	}
}

static uint8_t *place_of(const struct gpu_plan *plan, bool out, uint32_t number)
{
	return (out ? plan->out : plan->in) +
	       (size_t)(number & plan->frame_mask) * plan->frame_stride;
}

static void copy_frame(const struct gpu_plan *plan, bool out, uint32_t number)
{
	uint32_t place = number - plan->frame_first, part = place % plan->block_parts, rank = 0;
	uint32_t first = place / plan->block_parts * plan->frame_blocks;
	uint32_t offset = part * plan->part_bytes;
	uint32_t bytes =
		part + 1 < plan->block_parts ? plan->part_bytes : plan->block_bytes - offset;
	uint8_t *frame = place_of(plan, out, number);

	for (uint32_t i = 0; i < GPU_PLAN_WORDS * 64 && rank < first + plan->frame_blocks; i++) {
		uint64_t block = deal_block(plan->shard_count, plan->shard, plan->first_index + i);

		if (!bit(plan->united, i))
			continue;
		if (rank >= first && (!out || bit(plan->own, i))) {
			copy_part(plan, out, block, offset, bytes, frame);
			frame += bytes;
		}
		rank++;
	}
}

static void do_copy(const struct work *work)
{
	for (uint32_t i = 0; i < work->copy.run_count; i++)
		for (uint32_t f = 0; f < work->runs[i].count; f++)
			copy_frame(work->runs[i].plan, work->copy.out, work->runs[i].frame + f);
	tell(&work->copy.done);
}

/* ---- the table ---- */

static uint64_t now_us(void)
{
	return simnet_now(current->net);
}

static bool dead(const struct gpu *gpu, struct why *why)
{
	if (gpu->worker->gpu_dead)
		why_set(why, -EIO, "its GPU has failed");
	return gpu->worker->gpu_dead;
}

static int put(struct gpu *gpu, struct work *work, uint32_t stream)
{
	const struct job_spec *job = job_of(gpu->worker);
	uint64_t most = stream == STREAM_OUT  ? job->gpu_out_us
	                : stream == STREAM_IN ? job->gpu_in_us
	                                      : job->gpu_scan_us;
	uint64_t *free_us = &gpu->free_us[stream];
	struct work **at = &gpu->first;

	*free_us =
		(*free_us > now_us() ? *free_us : now_us()) + simnet_between(current->net, 1, most);
	work->due_us = *free_us;
	work->stream = stream;
	while (*at != NULL && (*at)->due_us <= work->due_us)
		at = &(*at)->next;
	work->next = *at;
	*at = work;
	return 0;
}

static int locate(const void *memory, int *device, struct why *why)
{
	(void)memory, (void)why;
	*device = 0;
	return 0;
}

/* What is in a caller's stream takes as long as a scan. */
struct gpu_mark {
	uint64_t due_us;
};

static int mark(int device, void *stream, struct gpu_mark **out, struct why *why)
{
	(void)device, (void)stream, (void)why;
	*out = calloc(1, sizeof(**out));
	(*out)->due_us = now_us() + simnet_between(current->net, 0, marking->gpu_scan_us);
	return 0;
}

static int is_past(struct gpu *gpu, struct gpu_mark *at, struct why *why)
{
	if (dead(gpu, why))
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

	(void)device, (void)why;
	gpu->worker = opening;
	opening->gpu = gpu;
	memory->pinned = aligned_alloc(256, memory->pinned_bytes);
	memory->device = aligned_alloc(256, (memory->device_bytes + 255) / 256 * 256);
	memset(memory->pinned, 0, memory->pinned_bytes);
	gpu->memory = *memory;
	*out = gpu;
	return 0;
}

static void gpu_close(struct gpu *gpu)
{
	struct work *next;

	for (struct work *work = gpu->first; work != NULL; work = next) {
		next = work->next;
		free(work);
	}
	free(gpu->memory.pinned);
	free(gpu->memory.device);
	free(gpu);
}

static int gpu_scan(struct gpu *gpu, const struct gpu_scan *scan, struct why *why)
{
	uint64_t blocks = bitmap_block_count(scan->tensor.count, scan->tensor.block_elems);
	struct work *work;

	if (dead(gpu, why))
		return -EIO;
	work = calloc(1, sizeof(*work));
	work->kind = WORK_SCAN;
	work->scan = *scan;
	memset(scan->found, GARBAGE, gpu_scan_room(blocks, scan->range_blocks) * 4);
	return put(gpu, work, STREAM_SCAN);
}

static int gpu_copy(struct gpu *gpu, const struct gpu_copy *copy, struct why *why)
{
	struct work *work;

	if (dead(gpu, why))
		return -EIO;
	work = calloc(1, sizeof(*work));
	work->kind = WORK_COPY;
	work->copy = *copy;
	memcpy(work->runs, copy->runs, copy->run_count * sizeof(work->runs[0]));
	for (uint32_t i = 0; copy->out && i < copy->run_count; i++) {
		const struct gpu_plan *plan = copy->runs[i].plan;

		/* The only frame of one without rings has no more room than it needs. */
		for (uint32_t f = 0; plan->frame_mask != UINT32_MAX && f < copy->runs[i].count; f++)
			memset(place_of(plan, true, copy->runs[i].frame + f), GARBAGE,
			       plan->frame_stride);
	}
	return put(gpu, work, copy->out ? STREAM_OUT : STREAM_IN);
}

static int follow(struct gpu *gpu, void *stream, struct why *why)
{
	(void)stream;
	return dead(gpu, why) ? -EIO : 0;
}

static int check(struct gpu *gpu, struct why *why)
{
	return dead(gpu, why) ? -EIO : 0;
}

static const struct gpu_calls calls = {
	.locate = locate,
	.mark = mark,
	.is_past = is_past,
	.unmark = unmark,
	.open = gpu_open,
	.close = gpu_close,
	.scan = gpu_scan,
	.copy = gpu_copy,
	.follow = follow,
	.check = check,
};

/* ---- what comm_gpu.c does ---- */

static void passed(void *context, bool there)
{
	struct sim_op *op = context;
	struct sim_worker *w = op->worker;
	const struct op_spec *spec = worker_op(w, (uint32_t)(op - w->ops));

	if (!there && op->task.status == 0)
		op->task.status = WINNOW_ERR_GPU;
	/* It is the caller's again. */
	if (op->send != op->recv)
		memset(op->send, GARBAGE, spec->count * data_elem_bytes(spec->dtype));
	op->dones++;
	w->finished++;
	w->world->last_us = now_us();
}

static void open_gpu(struct sim_worker *w)
{
	struct winnow_stats stats;
	struct staging_config config = {
		.calls = &calls,
		.world = job_of(w)->world,
		.window = session_window(w->session),
		.op_slots = session_op_slots(w->session),
		.pinned_bytes = job_of(w)->gpu_bytes,
		.passed = passed,
	};
	struct why why;

	session_stats(w->session, &stats);
	config.shard_count = stats.channels;
	config.payload = stats.payload;
	opening = w;
	if (staging_open(&config, &w->staging, &why) != 0)
		abort();
}

void gpu_post(struct sim_worker *w, struct sim_op *op)
{
	struct why why;

	current = w->world;
	marking = job_of(w);
	op->staged = (struct staged){0};
	if (session_state(w->session) != SESSION_RUNNING)
		return; /* as winnow_comm_check() would say; submitting it does, too */
	if (w->staging == NULL)
		open_gpu(w);
	op->staged = (struct staged){.staging = w->staging, .context = op};
	(void)mark(0, NULL, &op->staged.mark, &why);
	op->task.access = &staging_access;
	op->task.access_state = &op->staged;
}

bool gpu_turn(struct sim_worker *w)
{
	struct work *work;
	bool any;

	current = w->world;
	if (w->staging == NULL)
		return false;
	while (!w->gpu_dead && (work = w->gpu->first) != NULL && work->due_us <= now_us()) {
		w->gpu->first = work->next;
		if (work->kind == WORK_SCAN)
			do_scan(&work->scan);
		else
			do_copy(work);
		free(work);
	}
	w->gpu->marks_due_us = UINT64_MAX;
	if (staging_error(w->staging)[0] != '\0')
		session_fail(w->session, WINNOW_ERR_GPU, staging_error(w->staging));
	any = staging_turn(w->staging, now_us() >= w->gpu_check_us);
	if (now_us() >= w->gpu_check_us)
		w->gpu_check_us = now_us() + CHECK_US;
	return any;
}

uint64_t gpu_due_us(struct sim_worker *w)
{
	uint64_t due_us = w->gpu_check_us;

	if (w->staging == NULL)
		return UINT64_MAX;
	if ((staging_state(w->staging) & STAGING_BUSY) == 0)
		due_us = UINT64_MAX;
	if (!w->gpu_dead && w->gpu->first != NULL && w->gpu->first->due_us < due_us)
		due_us = w->gpu->first->due_us;
	return w->gpu->marks_due_us < due_us ? w->gpu->marks_due_us : due_us;
}
