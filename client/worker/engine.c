// SPDX-License-Identifier: BSD-3-Clause
/*
 * engine.c - see engine.h
 *
 * Operations start in the order of submission, each in an operation slot that is free on every
 * channel. The engine scans the oldest operation first, and the next one when the oldest has as many
 * segments under way as it may. So every operation in a slot is announced, whatever the others wait
 * for, and workers that submit in different orders cannot block each other (PROTOCOL.md section 6.3).
 *
 * Frames are numbered when they are planned, and go out in that order, so no frame can overtake an
 * announced one. While operations with a priority are under way, the engine therefore announces only
 * enough to keep the channels busy, highest priority first. This cannot cause a deadlock: a busy
 * channel holds operations that have a plan, or that are too new to have one, and drains by itself.
 */

#include "client/worker/engine.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "client/winnow.h"

/* The two upper bits. 6.3: "Operations without a tag of the user's are tagged 2^63 + n" */
#define TAGS_BY_ORDER 2
#define PASSED_MAX 16 /* segments of others; 6.3: "nor pass over an operation for ever" */

/* ---- memory ---- */

int engine_open(const struct stream_config *streams, uint32_t stream_count,
                struct bitmap_pool *pool, struct engine **out)
{
	size_t words = (size_t)stream_count * SEGMENT_WORDS;
	struct engine *e;
	int err = -ENOMEM;

	if (stream_count == 0 || stream_count > WIRE_SHARDS_MAX)
		return -EINVAL;
	e = calloc(1, sizeof(*e) + stream_count * sizeof(e->streams[0]));
	if (e == NULL)
		return -ENOMEM;
	STAILQ_INIT(&e->waiting);
	STAILQ_INIT(&e->active);
	e->found = calloc(words, sizeof(*e->found));
	e->shard_bits = calloc(words, sizeof(*e->shard_bits));
	e->op_slots = streams[0].op_slots;
	if (e->found == NULL || e->shard_bits == NULL)
		goto fail;
	e->pool = pool;
	e->payload = streams[0].payload;
	e->eager_count = stream_count;
	e->rank = streams[0].rank;
	e->world = streams[0].world;
	for (; e->stream_count < stream_count; e->stream_count++) {
		const struct stream_config *c = &streams[e->stream_count];

		err = -EINVAL;
		if (c->shard != e->stream_count || c->shard_count != stream_count ||
		    c->payload != e->payload || c->rank != e->rank || c->world != e->world)
			goto fail;
		/* 5.1: "A worker of several aggregators uses the smallest op_slots" */
		if (c->op_slots < e->op_slots)
			e->op_slots = c->op_slots;
		err = stream_open(c, &e->streams[e->stream_count]);
		if (err != 0)
			goto fail;
	}
	*out = e;
	return 0;
fail:
	engine_close(e);
	return err;
}

void engine_close(struct engine *engine)
{
	if (engine == NULL)
		return;
	for (uint32_t i = 0; i < engine->stream_count; i++)
		stream_close(engine->streams[i]);
	free(engine->found);
	free(engine->shard_bits);
	free(engine);
}

/* ---- starting ---- */

static bool slot_is_free(const struct engine *engine, uint32_t slot)
{
	const struct allreduce *task;

	STAILQ_FOREACH(task, &engine->active, next)
		if (task->slot == slot)
			return false;
	for (uint32_t i = 0; i < engine->stream_count; i++)
		if (!stream_slot_free(engine->streams[i], slot))
			return false;
	return true;
}

/* The operation uses streams [first, *end): all, or one if it is eager. Returns the first. */
static uint32_t streams_of(const struct engine *engine, const struct allreduce *task, uint32_t *end)
{
	uint32_t first = 0;

	*end = engine->stream_count;
	if (task->cut.eager) {
		first = geometry_eager_channel(task->tag, engine->eager_count);
		*end = first + 1;
	}
	return first;
}

/* Gives free slots to waiting operations. */
static void start_waiting(struct engine *engine)
{
	for (uint32_t slot = 0; slot < engine->op_slots; slot++) {
		struct allreduce *task;
		uint32_t first, end;

		if (!slot_is_free(engine, slot))
			continue;
		task = STAILQ_FIRST(&engine->waiting);
		if (task == NULL)
			return;
		STAILQ_REMOVE_HEAD(&engine->waiting, next);
		STAILQ_INSERT_TAIL(&engine->active, task, next);
		task->slot = slot;
		first = streams_of(engine, task, &end);
		task->shards_left = end - first;
		for (uint32_t i = first; i < end; i++)
			stream_begin(engine->streams[i], task);
	}
}

/* Eager operations take one round trip instead of two (PROTOCOL.md 4.4). Must not need more datagrams than `form`. */
static bool better_eager(const struct geometry_input *input, enum dtype form)
{
	struct geometry cut;

	return geometry_compute(input, &cut) && cut.eager &&
	       (cut.segment_count == 1 || dtype_bytes(form) == input->elem_bytes);
}

/* A tag by order is never used twice, so it needs no search. */
static bool is_under_way(const struct engine *engine, uint64_t tag)
{
	return tag >> 62 != TAGS_BY_ORDER &&
	       (list_has_tag(&engine->active, tag) || list_has_tag(&engine->waiting, tag));
}

int engine_submit(struct engine *engine, struct allreduce *task, uint64_t now_us)
{
	struct geometry_input input = {
		.count = task->count,
		.block_elems = task->block_elems,
		.elem_bytes = dtype_bytes((enum dtype)task->dtype),
		.shard_count = engine->stream_count,
		.payload = engine->payload,
		.scatter = task->scatter ? engine->world : 0,
		.agreed = task->agreed,
		.part_count = task->part_count,
		.parts = task->parts,
	};

	if (engine->failed != 0)
		return engine->failed;
	if (task->form_auto && better_eager(&input, (enum dtype)task->form))
		task->form = WIRE_NATIVE;
	if (task->form != WIRE_NATIVE) {
		input.elem_bytes = dtype_bytes((enum dtype)task->form);
		input.converted = true;
	}
	if (!geometry_compute(&input, &task->cut))
		return WINNOW_ERR_INVALID;
	if (input.converted && (task->dtype != DTYPE_F32 || task->reduction > REDUCE_AVG))
		return WINNOW_ERR_INVALID;
	if (is_under_way(engine, task->tag))
		return WINNOW_ERR_BUSY;
	task->share_count = task->scatter ? task->count / engine->world : task->count;
	task->share_first = task->scatter ? task->share_count * engine->rank : 0;
	task->status = 0;
	task->blocks = task->cut.block_count;
	task->blocks_nonzero = task->blocks_union = 0;
	task->segments_scanned = task->passed = 0;
	assert(task->access != NULL);
	if (task->access->begin(task) != 0)
		return WINNOW_ERR_MEMORY;
	task->started_us = now_us;
	if (engine->open == 0)
		engine->progress_us = now_us;
	STAILQ_INSERT_TAIL(&engine->waiting, task, next);
	engine->open++;
	start_waiting(engine);
	return 0;
}

/* ---- scanning ---- */

/* Deals the bits of a segment out to the shards that own them. */
static void deal_bits(const struct engine *engine, const struct geometry *cut, uint32_t segment)
{
	uint32_t shards = cut->shard_count;
	struct geometry_segment of = geometry_segment(cut, segment);
	uint64_t first_block, blocks = geometry_span(cut, &of, &first_block);

	memset(engine->shard_bits, 0, (size_t)shards * SEGMENT_WORDS * 8);
	for (uint64_t word = 0; word < (blocks + 63) / 64; word++) {
		for (uint64_t left = engine->found[word]; left != 0; left &= left - 1) {
			uint64_t block = word * 64 + (uint64_t)__builtin_ctzll(left);
			uint32_t shard = deal_shard(cut->shard_count, first_block + block);
			uint64_t group = block / shards;

			bit_set(engine->shard_bits + (size_t)shard * SEGMENT_WORDS, group);
		}
	}
}

static void scan_segment(struct engine *engine, struct allreduce *task, uint64_t now_us)
{
	const struct geometry *cut = &task->cut;
	uint32_t number = task->segments_scanned++;
	struct bitmap_range range = {.exponent = BITMAP_EXPONENT_NONE};
	struct access_scan want = {.pool = engine->pool,
	                           .bits = engine->found,
	                           .spare = engine->shard_bits,
	                           .range = task->form >= WIRE_FIXED32 ? &range : NULL};
	struct stream_scan scan = {.exponent = WIRE_EXPONENT_NONE, .bits = engine->found};
	uint32_t end, first = streams_of(engine, task, &end);

	task->blocks_nonzero += task->access->scan(task, number, &want);
	scan.nonfinite = range.nonfinite;
	if (range.exponent != BITMAP_EXPONENT_NONE && !range.nonfinite)
		scan.exponent = (int16_t)range.exponent;
	if (first + 1 < end)
		deal_bits(engine, cut, number);
	for (uint32_t i = first; i < end; i++) {
		if (first + 1 < end)
			scan.bits = engine->shard_bits + (size_t)i * SEGMENT_WORDS;
		stream_announce(engine->streams[i], task, number, &scan, now_us);
	}
}

static bool has_room(const struct engine *engine, struct allreduce *task)
{
	const struct access *access = task->access;
	uint32_t number = task->segments_scanned;
	uint32_t end, first = streams_of(engine, task, &end);
	bool room = true;

	if (number == task->cut.segment_count ||
	    (access->ready != NULL && !access->ready(task, number)))
		return false;
	for (uint32_t i = first; i < end; i++)
		room = stream_ask_room(engine->streams[i], task, number) && room;
	return room;
}

/* ---- choosing ---- */

/* Returns whether `a` goes before the older `b`. Eager operations go first because they delay no others. */
static bool goes_before(const struct allreduce *a, const struct allreduce *b)
{
	bool a_first = a->cut.eager || a->passed > PASSED_MAX;
	bool b_first = b->cut.eager || b->passed > PASSED_MAX;

	return a_first != b_first ? a_first : a->priority > b->priority;
}

static bool all_busy(const struct engine *engine)
{
	for (uint32_t i = 0; i < engine->stream_count; i++)
		if (!stream_is_busy(engine->streams[i]))
			return false;
	return true;
}

/*
 * 6.3: "It announces the oldest first, or may choose another". Stops at the first that has room, because has_room()
 * reserves memory for a tensor on a GPU.
 */
static struct allreduce *next_by_age(const struct engine *engine)
{
	struct allreduce *task;

	STAILQ_FOREACH(task, &engine->active, next)
		if (has_room(engine, task))
			break;
	return task;
}

static struct allreduce *next_by_priority(const struct engine *engine)
{
	bool busy = all_busy(engine);
	struct allreduce *task, *next = NULL;

	STAILQ_FOREACH(task, &engine->active, next) {
		if ((busy && !task->cut.eager) || !has_room(engine, task))
			continue;
		task->passed++;
		if (next == NULL || goes_before(task, next))
			next = task;
	}
	if (next != NULL)
		next->passed = 0;
	return next;
}

bool engine_work(struct engine *engine, uint64_t now_us)
{
	struct allreduce *next;

	STAILQ_FOREACH(next, &engine->active, next)
		if (next->priority != 0)
			break;
	next = next != NULL ? next_by_priority(engine) : next_by_age(engine);
	if (next == NULL)
		return false;
	scan_segment(engine, next, now_us);
	return true;
}

/* ---- finishing ---- */

static void task_finish(struct engine *engine, struct allreduce *task)
{
	STAILQ_REMOVE(&engine->active, task, allreduce, next);
	engine->open--;
	task->done(task);
}

const struct allreduce *engine_receive(struct engine *engine, uint32_t index,
                                       const struct packet *packet, uint64_t now_us)
{
	struct allreduce *task;

	if (engine->failed != 0)
		return NULL;
	task = stream_receive(engine->streams[index], packet, now_us);
	if ((packet->kind == WIRE_PLAN || packet->kind == WIRE_RESULT) &&
	    stream_news_us(engine->streams[index]) == now_us)
		engine->progress_us = now_us;
	if (task != NULL && task->status != 0)
		return task;
	if (task != NULL && task->shards_left == 0)
		task_finish(engine, task);
	if (!STAILQ_EMPTY(&engine->waiting))
		start_waiting(engine);
	return NULL;
}

void engine_fail(struct engine *engine, int status)
{
	struct task_list all = STAILQ_HEAD_INITIALIZER(all);
	struct allreduce *task;

	engine->failed = status;
	engine->open = 0;
	STAILQ_CONCAT(&all, &engine->active);
	STAILQ_CONCAT(&all, &engine->waiting);
	while ((task = STAILQ_FIRST(&all)) != NULL) {
		STAILQ_REMOVE_HEAD(&all, next);
		task->status = status;
		task->done(task);
	}
}

bool engine_pull(struct engine *engine, uint32_t first, uint32_t end, uint64_t now_us,
                 struct packet_out *out)
{
	if (engine->failed != 0)
		return false;
	for (uint32_t i = first; i < end; i++)
		if (stream_pull(engine->streams[i], now_us, out))
			return true;
	return false;
}

uint64_t engine_deadline(const struct engine *engine)
{
	uint64_t due_us = NEVER;

	for (uint32_t i = 0; i < engine->stream_count && engine->failed == 0; i++)
		sooner(&due_us, stream_deadline(engine->streams[i]));
	return due_us;
}

uint32_t engine_gathers(const struct engine *engine)
{
	const struct allreduce *task;
	uint32_t count = 0;

	STAILQ_FOREACH(task, &engine->active, next)
		if (task->cut.eager)
			return 0;
	for (uint32_t i = 0; i < engine->stream_count; i++) {
		uint32_t gathers = stream_gathers(engine->streams[i]);

		if (gathers == 0 && !stream_quiet(engine->streams[i]))
			return 0;
		count += gathers;
	}
	return count;
}

bool engine_quiet(const struct engine *engine)
{
	if (engine->open > 0)
		return false;
	for (uint32_t i = 0; i < engine->stream_count; i++)
		if (!stream_quiet(engine->streams[i]))
			return false;
	return true;
}

uint64_t engine_waits_us(const struct engine *engine, uint32_t first, uint32_t end)
{
	uint64_t since_us = NEVER;

	for (uint32_t i = first; i < end && engine->failed == 0; i++)
		sooner(&since_us, stream_waits_us(engine->streams[i]));
	return since_us;
}

uint64_t engine_tag(const struct engine *engine)
{
	const struct allreduce *oldest = STAILQ_FIRST(&engine->active);

	if (oldest == NULL)
		oldest = STAILQ_FIRST(&engine->waiting);
	return oldest != NULL ? oldest->tag : 0;
}
