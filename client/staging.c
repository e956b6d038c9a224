// SPDX-License-Identifier: BSD-3-Clause
/* staging.c - see staging.h */

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/staging_impl.h"

int staging_open(const struct staging_config *config, struct staging **out, char *why)
{
	struct gpu_hooks hooks = {config->wake, config->failing, config->context};
	struct staging *s = calloc(1, sizeof(*s));
	int err;

	if (s == NULL) {
		snprintf(why, GPU_WHY_BYTES, "out of memory");
		return -ENOMEM;
	}
	s->config = *config;
	err = config->calls->open(config->device, &hooks, &s->gpu, why);
	if (err != 0) {
		free(s);
		return err;
	}
	pthread_mutex_init(&s->growth, NULL);
	pthread_mutex_init(&s->lock, NULL);
	*out = s;
	return 0;
}

void staging_close(struct staging *staging)
{
	struct staging_op *next;

	if (staging == NULL)
		return;
	for (struct staging_op *op = staging->unused; op != NULL; op = next) {
		next = op->next;
		staging->config.calls->gate_close(&op->gate);
		free(op);
	}
	slots_free(staging, staging->free_slots);
	slots_free(staging, staging->small_slots);
	views_free(staging, staging->views);
	staging->config.calls->close(staging->gpu);
	pthread_mutex_destroy(&staging->growth);
	pthread_mutex_destroy(&staging->lock);
	free(staging);
}

/* ---- callers ---- */

static int op_new(struct staging *s, struct staging_op **out, char *why)
{
	struct staging_op *op;
	int err;

	pthread_mutex_lock(&s->lock);
	op = s->unused;
	s->unused = op != NULL ? op->next : NULL;
	pthread_mutex_unlock(&s->lock);
	if (op == NULL) {
		op = calloc(1, sizeof(*op));
		if (op == NULL) {
			snprintf(why, GPU_WHY_BYTES, "out of memory");
			return -ENOMEM;
		}
		err = s->config.calls->gate_open(s->gpu, &op->gate, why);
		if (err != 0) {
			free(op);
			return err;
		}
	}
	op->staging = s;
	op->task = NULL;
	op->launched = op->slot_count = 0;
	op->linked = op->finishing = op->viewed = false;
	op->fine = 0;
	op->view = NULL;
	op->bytes = (struct staging_bytes){0};
	*out = op;
	return 0;
}

int staging_post(struct staging *staging, const struct staging_post *what, struct staging_op **out,
                 char *why)
{
	struct staging_op *op;
	uint64_t bytes;
	int err = slot_bytes_for(staging, what, &bytes);

	if (err != 0) {
		snprintf(why, GPU_WHY_BYTES, "the tensor has too many blocks");
		return err;
	}
	err = op_new(staging, &op, why);
	if (err != 0)
		return err;
	op->context = what->context;
	err = slots_grow(staging, bytes, why);
	op->wants = err == 0;
	view_take(op, what->count, what->fine);
	if (err == 0)
		err = staging->config.calls->post(&op->gate, what->stream, what->stream_waits, why);
	if (err != 0) {
		staging_free(op);
		return err;
	}
	*out = op;
	return 0;
}

bool staging_can_wait(const struct staging *staging)
{
	return staging->config.calls->can_wait(staging->gpu);
}

int staging_wait(struct staging_op *op, void *stream, char *why)
{
	return op->staging->config.calls->wait(&op->gate, stream, why);
}

struct staging_bytes staging_bytes(const struct staging_op *op)
{
	return op->bytes;
}

void staging_free(struct staging_op *op)
{
	struct staging *s = op->staging;

	view_return(op); /* of one that nobody has taken */
	pthread_mutex_lock(&s->lock);
	s->wanting -= op->wants;
	op->wants = false;
	op->next = s->unused;
	s->unused = op;
	pthread_mutex_unlock(&s->lock);
}

/* ---- the GPU's failures ---- */

static bool signalled(const struct gpu_signal *signal)
{
	return atomic_load_explicit(&signal->set, memory_order_acquire);
}

/* After a failure: what busy() says. Whatever waits goes on once no kernel writes into tensors. */
static int drain(struct staging *s)
{
	char why[GPU_WHY_BYTES];
	int state = s->config.calls->busy(s->gpu, why);

	for (struct staging_op *op = s->under_way; op != NULL && state != GPU_MOVES; op = op->next)
		s->config.calls->release(&op->gate);
	return state;
}

/* The operations will fail. */
static void gpu_failed(struct staging *s, const char *why)
{
	if (s->error[0] == '\0') {
		snprintf(s->error, sizeof(s->error), "%s", why);
		s->config.failing(s->config.context, why);
	}
	(void)drain(s);
}

bool staging_check(struct staging *staging)
{
	char why[GPU_WHY_BYTES];

	if (staging->error[0] == '\0' && staging->under_way != NULL &&
	    staging->config.calls->busy(staging->gpu, why) < 0)
		gpu_failed(staging, why);
	return staging->error[0] == '\0';
}

const char *staging_error(const struct staging *staging)
{
	return staging->error;
}

bool staging_idle(const struct staging *staging)
{
	return staging->under_way == NULL;
}

/* ---- what the machines ask for ---- */

static void link_op(struct staging_op *op)
{
	struct staging *s = op->staging;

	if (op->linked)
		return;
	op->linked = true;
	op->next = s->under_way;
	s->under_way = op;
}

static int begin(struct allreduce *task)
{
	struct staging_op *op = task->access_state;

	op->task = task;
	link_op(op);
	return 0;
}

/* Blocks [first, first + blocks) of the tensor. */
static uint64_t segment_range(const struct geometry *cut, uint32_t number, uint64_t *first)
{
	uint64_t blocks = (uint64_t)geometry_segment_blocks(cut, number) * cut->shard_count;

	*first = (uint64_t)number * cut->segment_blocks * cut->shard_count;
	return cut->block_count - *first < blocks ? cut->block_count - *first : blocks;
}

/* Is the segment nothing but a last block that is short? No tensor is shorter than its blocks. */
static bool is_short_block(const struct allreduce *task, uint32_t number)
{
	uint64_t first;

	return segment_range(&task->cut, number, &first) == 1 &&
	       task->count - first * task->cut.block_elems < task->cut.block_elems;
}

static int scan_segment(struct staging_op *op, struct staging_slot *slot, char *why)
{
	const struct allreduce *task = op->task;
	const struct geometry *cut = &task->cut;
	struct bitmap_tensor tensor = {.block_elems = cut->block_elems, .dtype = task->dtype};
	uint64_t first, blocks = segment_range(cut, slot->number, &first);
	uint64_t first_elem = first * cut->block_elems;

	tensor.count = blocks * cut->block_elems;
	if (task->count - first_elem < tensor.count)
		tensor.count = task->count - first_elem;
	if (tensor.count > 0)
		tensor.data = (const uint8_t *)task->send + first_elem * cut->elem_bytes;
	if (is_short_block(task, slot->number))
		tensor.block_elems = tensor.count;
	return op->staging->config.calls->scan(&slot->gpu, &tensor, task->form == WIRE_FIXED32,
	                                       why);
}

/* As many segments as there are slots for. */
static void scan_ahead(struct staging_op *op)
{
	struct staging *s = op->staging;
	char why[GPU_WHY_BYTES];

	if (view_begin(op, why) != 0) {
		gpu_failed(s, why);
		return;
	}
	while (op->launched < op->task->cut.segment_count &&
	       op->slots[op->launched % STAGING_AHEAD_MAX] == NULL) {
		struct staging_slot *slot = slot_take(op);

		if (slot == NULL)
			return;
		slot->number = op->launched;
		slot->shards_left = op->task->cut.shard_count;
		slot->unpacks = slot->received = false;
		op->slots[op->launched++ % STAGING_AHEAD_MAX] = slot;
		if (scan_segment(op, slot, why) != 0) {
			gpu_failed(s, why);
			return;
		}
	}
}

static bool ready(struct allreduce *task, uint32_t number)
{
	struct staging_op *op = task->access_state;
	const struct staging_slot *slot;

	if (op->staging->error[0] != '\0' || !signalled(&op->gate.open))
		return false;
	scan_ahead(op);
	slot = op->slots[number % STAGING_AHEAD_MAX];
	return slot != NULL && slot->number == number && signalled(&slot->gpu.scanned);
}

static struct staging_slot *slot_of(const struct allreduce *task, uint32_t segment)
{
	const struct staging_op *op = task->access_state;
	struct staging_slot *slot = op->slots[segment % STAGING_AHEAD_MAX];

	assert(slot != NULL && slot->number == segment);
	return slot;
}

static void scan(struct allreduce *task, uint32_t number, uint64_t *bits, struct access_scan *out)
{
	struct staging_op *op = task->access_state;
	struct staging_slot *slot = slot_of(task, number);
	uint64_t first, blocks = segment_range(&task->cut, number, &first);
	uint64_t words = bitmap_word_count(blocks), space = task->cut.block_bytes;
	uint32_t count = 0;

	for (uint64_t i = 0; i < words; i++) {
		bits[i] = slot->gpu.bits[i];
		slot->ranks[i] = count;
		count += (uint32_t)__builtin_popcountll(bits[i]);
	}
	out->count = count;
	out->values = NULL;
	if (is_short_block(task, number)) {
		space = task->count % task->cut.block_elems * task->cut.elem_bytes;
		memset(slot->gpu.packed + space, 0, task->cut.block_bytes - space);
	}
	if (task->form == WIRE_FIXED32 && blocks > 0)
		out->range = bitmap_range_of(*slot->gpu.magnitude, task->dtype);
	op->bytes.out += count * space;
	if (blocks > 0)
		op->bytes.out += (1 + words) * sizeof(*bits);
}

static const uint8_t *send_block(const struct allreduce *task, uint32_t segment, uint64_t block)
{
	const struct geometry *cut = &task->cut;
	const struct staging_slot *slot = slot_of(task, segment);
	uint64_t bit = block - (uint64_t)segment * cut->segment_blocks * cut->shard_count;
	uint64_t below = slot->gpu.bits[bit / 64] & ((UINT64_C(1) << (bit % 64)) - 1);
	uint64_t rank = slot->ranks[bit / 64] + (uint64_t)__builtin_popcountll(below);

	return slot->gpu.packed + rank * cut->block_bytes;
}

static int plan(struct allreduce *task, const struct access_plan *plan)
{
	struct staging_slot *slot = slot_of(task, plan->segment);
	uint8_t *to = slot->gpu.plans + (size_t)plan->shard * GPU_PLAN_BYTES;
	uint32_t words = (plan->block_count + 63) / 64;
	uint32_t *ranks = (uint32_t *)(void *)(to + words * 8);

	memcpy(to, plan->united, words * 8);
	for (uint32_t i = 0; i < words; i++)
		ranks[i] = plan->ranks[i];
	ranks[words] = plan->union_count;
	slot->plans[plan->shard] = (struct staging_plan){
		.union_count = plan->union_count, .fixed = plan->fixed, .shift = plan->shift};
	return 0;
}

/* Where a shard's sums begin. */
static uint8_t *sums_of(const struct geometry *cut, const struct staging_slot *slot, uint32_t shard)
{
	uint64_t blocks = geometry_segment_blocks(cut, slot->number);

	return slot->gpu.sums + shard * blocks * cut->block_bytes;
}

static void store(struct allreduce *task, uint32_t shard, uint32_t segment, uint64_t offset,
                  const void *data, uint32_t bytes)
{
	memcpy(sums_of(&task->cut, slot_of(task, segment), shard) + offset, data, bytes);
}

static int unpack(struct staging_op *op, struct staging_slot *slot, uint32_t shard, char *why)
{
	const struct staging *s = op->staging;
	const struct allreduce *task = op->task;
	const struct geometry *cut = &task->cut;
	const struct staging_plan *said = &slot->plans[shard];
	uint32_t blocks = geometry_segment_blocks(cut, slot->number);
	uint64_t words = bitmap_word_count(blocks);
	struct gpu_unpack what = {
		.shape = {.count = task->count,
	                  .block_elems = cut->block_elems,
	                  .dtype = task->dtype},
		.deal = {.shard = shard,
	                 .shard_count = cut->shard_count,
	                 .first_index = (uint64_t)slot->number * cut->segment_blocks,
	                 .index_count = blocks},
		.form = {.fixed = said->fixed,
	                 .shift = said->shift,
	                 .divisor = task->reduction == REDUCE_AVG ? s->config.world : 1},
		.plan = shard,
		.sums = sums_of(cut, slot, shard),
		.clear_others = task->send != task->recv, /* in place they are zero */
		.recv = task->recv,
	};

	if (blocks == 0 || (said->union_count == 0 && !what.clear_others))
		return 0;
	slot->unpacks = true;
	op->bytes.in +=
		(uint64_t)said->union_count * cut->block_bytes + words * 8 + (words + 1) * 4;
	return s->config.calls->unpack(&slot->gpu, &what, why);
}

static void received(struct allreduce *task, uint32_t shard, uint32_t segment)
{
	struct staging_op *op = task->access_state;
	struct staging *s = op->staging;
	struct staging_slot *slot = slot_of(task, segment);
	char why[GPU_WHY_BYTES];
	int err;

	if (s->error[0] != '\0')
		return;
	err = unpack(op, slot, shard, why);
	if (err == 0 && --slot->shards_left == 0) {
		slot->received = slot->unpacks;
		if (slot->unpacks)
			err = s->config.calls->empty(&slot->gpu, why);
		else
			slot_return(op, slot);
	}
	if (err != 0)
		gpu_failed(s, why);
}

const struct access staging_access = {
	.begin = begin,
	.ready = ready,
	.scan = scan,
	.send = send_block,
	.plan = plan,
	.store = store,
	.received = received,
};

/* ---- ending ---- */

void staging_finish(struct staging_op *op, bool failed)
{
	struct staging *s = op->staging;
	char why[GPU_WHY_BYTES];

	link_op(op);
	op->finishing = true;
	if (s->error[0] == '\0' && s->config.calls->finish(&op->gate, failed, why) != 0)
		gpu_failed(s, why);
	if (s->error[0] != '\0')
		(void)drain(s);
}

/* Slots whose sums are in the tensor; all, when the GPU does nothing any more. */
static bool take_back(struct staging_op *op, bool all)
{
	bool any = false;

	for (uint32_t i = 0; i < STAGING_AHEAD_MAX && op->slot_count > 0; i++) {
		struct staging_slot *slot = op->slots[i];

		if (slot == NULL || (!all && !(slot->received && signalled(&slot->gpu.emptied))))
			continue;
		slot_return(op, slot);
		any = true;
	}
	return any;
}

/*
 * Has the GPU nothing more to do for it? Its stream, too, must have come to where it was posted:
 * that signal may not hit the next operation. `state`: busy()'s after a failure (< 0: no more signals).
 */
static bool is_over(const struct staging_op *op, int state)
{
	return op->finishing && (state < 0 || (signalled(&op->gate.open) &&
	                                       (state == 0 || signalled(&op->gate.passed))));
}

bool staging_turn(struct staging *staging)
{
	struct staging_op **at = &staging->under_way;
	bool any = false;
	int state = 1;

	if (staging->under_way != NULL && staging->error[0] != '\0')
		state = drain(staging);

	while (*at != NULL) {
		struct staging_op *op = *at;
		bool over = is_over(op, state);

		if (take_back(op, over))
			any = true;
		if (view_look(op, over))
			any = true;
		if (!over) {
			at = &op->next;
			continue;
		}
		*at = op->next;
		any = true;
		staging->config.passed(op->context, signalled(&op->gate.passed));
	}
	return any;
}
