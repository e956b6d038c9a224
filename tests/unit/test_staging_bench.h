/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_staging_bench.h - operations on the scripted GPU, driven as engine and streams drive them
 *
 * One step is one thing that can happen: a piece of a queue, a look at the GPU, a segment scanned, a
 * plan, a segment's sums. They come in random order, so whatever order the real ones come in is
 * among them; when nothing can happen any more and an operation is not over, that is a deadlock.
 */
#ifndef TESTS_UNIT_TEST_STAGING_BENCH_H
#define TESTS_UNIT_TEST_STAGING_BENCH_H

#include "tests/unit/test_staging_op.h"

#define OPS_MAX 24
#define PAYLOAD 1472

static struct {
	struct staging *staging;
	struct staging_config config;
	struct op ops[OPS_MAX];
	uint32_t op_count, active, failures;
} bench;

static char why[GPU_WHY_BYTES];

/* ---- opening ---- */

static inline void on_wake(void *context)
{
	assert_ptr_equal(context, &bench);
	fake.wakes++;
}

static inline void on_failing(void *context, const char *text)
{
	assert_ptr_equal(context, &bench);
	assert_int_equal(bench.failures++, 0);
	assert_non_null(strstr(text, " fails"));
	assert_string_equal(text, staging_error(bench.staging));
	fake.told = true;
}

/* What was sent, bit by bit, before anything came in its place. */
static inline void on_viewed(void *context, uint32_t fine, const uint64_t *bits)
{
	struct op *op = context;
	const struct geometry *cut = &op->task.cut;
	uint64_t count = bitmap_block_count(op->task.count, fine);
	uint64_t *want = calloc(bitmap_word_count(count), sizeof(*want));

	assert_int_equal(fine, op->fine);
	assert_false(op->passed);
	assert_int_equal(op->views++, 0);
	for (uint64_t i = 0; i < op->task.count * cut->elem_bytes; i++) {
		uint64_t bit = i / cut->elem_bytes / fine;

		if (op->given[i] != 0)
			want[bit / 64] |= UINT64_C(1) << bit % 64;
	}
	assert_memory_equal(bits, want, bitmap_word_count(count) * sizeof(*want));
	free(want);
}

/* Its result is there, or will never be; the GPU touches it no more. */
static inline void on_passed(void *context, bool there)
{
	struct op *op = context;
	const struct geometry *cut = &op->task.cut;
	size_t bytes = op->task.count * cut->elem_bytes;
	size_t room = (cut->block_count + 1) * cut->block_bytes;

	assert_true(op->done);
	assert_false(op->passed);
	op->passed = true;
	assert_true(there || op->failed || bench.failures > 0);
	assert_true(there || fake.broken || !fake_has_work());
	if (there && !op->failed)
		assert_int_equal(op->views, op->fine > 0);
	if (there && !op->failed)
		assert_memory_equal(op->recv, op->want, bytes);
	for (size_t i = bytes; i < room; i++)
		assert_int_equal(op->recv[i], op->recv == op->send ? 0 : POISON);
}

static inline int bench_open(uint32_t shards, uint32_t op_slots)
{
	memset(&bench, 0, sizeof(bench));
	bench.config = (struct staging_config){
		.calls = &fake_calls,
		.device = 3,
		.world = WORLD,
		.shard_count = shards,
		.payload = PAYLOAD,
		.op_slots = op_slots,
		.wake = on_wake,
		.passed = on_passed,
		.viewed = on_viewed,
		.failing = on_failing,
		.context = &bench,
	};
	return staging_open(&bench.config, &bench.staging, why);
}

/* All operations are over: the next ones are theirs again. */
static inline void free_ops(void)
{
	for (uint32_t i = 0; i < bench.op_count; i++) {
		if (bench.ops[i].staged != NULL)
			staging_free(bench.ops[i].staged);
		op_free(&bench.ops[i]);
	}
	bench.op_count = 0;
}

static inline void bench_close(void)
{
	assert_true(bench.staging == NULL || staging_idle(bench.staging));
	free_ops();
	staging_close(bench.staging);
	assert_int_equal(fake.gates_open + fake.slots_open + fake.views_open, 0);
	(void)fake_begin(NULL);
}

/* ---- the caller ---- */

/* staging_post(), and what the engine does when it takes it. */
static inline int bench_post(const struct spec *spec)
{
	struct op *op = &bench.ops[bench.op_count];
	struct staging_post post = {
		.count = spec->count,
		.block_elems = spec->block_elems,
		.elem_bytes = dtype_bytes(spec->dtype),
		.stream = &fake,
		.stream_waits = true,
		.context = op,
		.fine = spec->fine,
	};
	struct geometry_input input = {
		.count = spec->count,
		.block_elems = spec->block_elems,
		.elem_bytes = dtype_bytes(spec->dtype),
		.shard_count = bench.config.shard_count,
		.payload = PAYLOAD,
		.fixed32 = spec->fixed,
	};
	int err = staging_post(bench.staging, &post, &op->staged, why);
	bool lacks;

	assert_true(bench.op_count < OPS_MAX);
	if (err != 0) {
		op->staged = NULL;
		return err;
	}
	bench.op_count++;
	if (staging_viewed(op->staged, &lacks))
		op->fine = spec->fine;
	assert_int_equal(op->fine > 0 || lacks, spec->fine > 0 && spec->count > 0);
	assert_true(!lacks || fake.met);
	op->task = (struct allreduce){
		.count = spec->count,
		.access = &staging_access,
		.access_state = op->staged,
		.block_elems = spec->block_elems,
		.dtype = (uint8_t)spec->dtype,
		.reduction = (uint8_t)spec->reduction,
		.form = spec->fixed ? WIRE_FIXED32 : WIRE_NATIVE,
	};
	assert_true(geometry_compute(&input, &op->task.cut));
	fill_op(op, spec);
	op->task.send = op->send;
	op->task.recv = op->recv;
	if (!spec->refused)
		assert_int_equal(staging_access.begin(&op->task), 0);
	return 0;
}

/* ---- engine and streams ---- */

static inline void finish_op(struct op *op, bool failed)
{
	op->done = true;
	op->failed = failed;
	bench.active -= op->active;
	staging_finish(op->staged, failed);
}

/* In the order of submission, as many as the job has slots for. */
static inline bool step_activate(void)
{
	for (uint32_t i = 0; i < bench.op_count && bench.active < bench.config.op_slots; i++) {
		struct op *op = &bench.ops[i];

		if (op->active || op->done)
			continue;
		op->active = true;
		bench.active++;
		return true;
	}
	return false;
}

/* A block as it is sent: its whole space, zeros behind a tensor's end. */
static inline void check_send(const struct op *op, uint32_t segment, uint64_t block)
{
	size_t bytes = block_bytes_of(op, block), space = op->task.cut.block_bytes;
	const uint8_t *data = staging_access.send(&op->task, segment, block);

	assert_memory_equal(data, op->given + block * space, bytes);
	assert_true(is_zero(data + bytes, space - bytes));
}

static inline void check_range(const struct op *op, uint64_t first, uint64_t end,
                               const struct access_scan *found)
{
	const struct geometry *cut = &op->task.cut;
	uint64_t last = end * cut->block_elems;
	int32_t exponent = BITMAP_EXPONENT_NONE;

	last = last < op->task.count ? last : op->task.count;
	for (uint64_t i = first * cut->block_elems; i < last; i++) {
		int one;

		if (((const float *)op->task.send)[i] == 0)
			continue;
		(void)frexpf(((const float *)op->task.send)[i], &one);
		exponent = one > exponent ? one : exponent;
	}
	assert_int_equal(found->range.exponent, exponent);
	assert_false(found->range.nonfinite);
}

static inline bool step_scan(struct op *op)
{
	const struct geometry *cut = &op->task.cut;
	uint64_t bits[8 * WIRE_SEGMENT_BLOCKS_MAX / 64];
	uint64_t blocks = (uint64_t)cut->segment_blocks * cut->shard_count, count = 0;
	uint64_t first = op->scanned * blocks, end = first + blocks;
	uint32_t segment = op->scanned;
	struct access_scan found = {.range = {.exponent = BITMAP_EXPONENT_NONE}};

	if (!op->active || op->done || segment == cut->segment_count ||
	    !staging_access.ready(&op->task, segment))
		return false;
	op->scanned++;
	end = end < cut->block_count ? end : cut->block_count;
	memset(bits, 0xff, sizeof(bits));
	staging_access.scan(&op->task, segment, bits, &found);
	for (uint64_t block = first; block < end; block++) {
		assert_int_equal(bits[(block - first) / 64] >> (block - first) % 64 & 1,
		                 op->own[block]);
		count += op->own[block];
		if (op->own[block])
			check_send(op, segment, block);
	}
	assert_int_equal(found.count, count);
	assert_null(found.values);
	if (op->task.form == WIRE_FIXED32)
		check_range(op, first, end, &found);
	memset(&op->parts[part_of(cut, segment, 0)], ANNOUNCED, cut->shard_count);
	return true;
}

/* The plan is the stream's, and gone when the call returns. */
static inline void plan_part(struct op *op, uint32_t segment, uint32_t shard)
{
	const struct geometry *cut = &op->task.cut;
	uint64_t united[GPU_PLAN_WORDS];
	uint16_t ranks[GPU_PLAN_WORDS];
	struct access_plan plan = {
		.segment = segment,
		.shard = shard,
		.block_count = geometry_segment_blocks(cut, segment),
		.united = united,
		.ranks = ranks,
		.fixed = op->task.form == WIRE_FIXED32,
		.shift = op->shifts[part_of(cut, segment, shard)],
	};

	memset(united, 0, sizeof(united));
	for (uint32_t i = 0; i < plan.block_count; i++) {
		uint64_t block =
			geometry_block(cut, shard, (uint64_t)segment * cut->segment_blocks + i);

		if (i % 64 == 0)
			ranks[i / 64] = (uint16_t)plan.union_count;
		if (block >= cut->block_count || !op->united[block])
			continue;
		united[i / 64] |= UINT64_C(1) << i % 64;
		plan.union_count++;
	}
	assert_int_equal(staging_access.plan(&op->task, &plan), 0);
	memset(united, 0xff, sizeof(united));
	memset(ranks, 0xff, sizeof(ranks));
}

/* Sums come in pieces, and are gone, too. */
static inline void store_part(struct op *op, uint32_t segment, uint32_t shard)
{
	const struct geometry *cut = &op->task.cut;
	uint32_t blocks = geometry_segment_blocks(cut, segment), pieces = 0;
	size_t space = cut->block_bytes, half = space > 8 && random_below(2) ? space / 2 : space;
	uint8_t *data = malloc(space);

	for (uint32_t i = 0; i < blocks; i++) {
		uint64_t block =
			geometry_block(cut, shard, (uint64_t)segment * cut->segment_blocks + i);
		const uint8_t *sum = op->sums + block * space;

		if (block >= cut->block_count || !op->united[block])
			continue;
		if (op->own[block] && random_below(100) == 0)
			check_send(op, segment, block); /* once more: the first was lost */
		for (size_t at = 0; at < space; at += half) {
			size_t bytes = space - at < half ? space - at : half;

			memcpy(data, sum + at, bytes);
			staging_access.store(&op->task, shard, segment, pieces * space + at, data,
			                     (uint32_t)bytes);
			memset(data, 0xff, bytes);
		}
		pieces++;
	}
	free(data);
}

/* The next thing that comes for it, of any segment and shard. */
static inline bool step_network(struct op *op)
{
	const struct geometry *cut = &op->task.cut;
	uint32_t parts = op->scanned * cut->shard_count, from;

	if (op->hold || op->done || parts == 0)
		return false;
	from = (uint32_t)random_below(parts);
	for (uint32_t i = 0; i < parts; i++) {
		uint32_t at = (from + i) % parts, segment = at / cut->shard_count;
		uint32_t shard = at % cut->shard_count;

		if (op->parts[at] == RECEIVED)
			continue;
		if (op->parts[at] == ANNOUNCED) {
			plan_part(op, segment, shard);
		} else {
			store_part(op, segment, shard);
			staging_access.received(&op->task, shard, segment);
			op->left--;
		}
		op->parts[at]++;
		if (op->left == 0)
			finish_op(op, false);
		return true;
	}
	return false;
}

/* The session ends: so do all its operations, those that have not begun, too. */
static inline bool step_fail(void)
{
	bool any = false;

	for (uint32_t i = 0; i < bench.op_count && bench.failures > 0; i++)
		if (!bench.ops[i].done) {
			finish_op(&bench.ops[i], true);
			any = true;
		}
	return any;
}

static inline bool step(uint32_t what)
{
	bool well = bench.failures == 0;

	switch (what) {
	case GATE:
	case OUT:
	case IN:
		return fake_run((enum queue)what);
	case QUEUES:
		return staging_turn(bench.staging);
	case QUEUES + 1:
		return staging_check(bench.staging) != well;
	case QUEUES + 2:
		return step_activate();
	case QUEUES + 3:
		return step_fail();
	}
	what -= QUEUES + 4;
	return what % 2 == 0 ? step_scan(&bench.ops[what / 2]) : step_network(&bench.ops[what / 2]);
}

/* Some of what can happen. */
static inline void run_some(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		(void)step((uint32_t)random_below(QUEUES + 4 + 2 * bench.op_count));
}

/* Whatever can happen, in random order, until nothing can. */
static inline void run_dry(void)
{
	uint32_t steps = QUEUES + 4 + 2 * bench.op_count;
	bool any = true;

	while (any) {
		run_some(4 * steps);
		any = false;
		/* Queues last: whoever asks for a segment may have put something there. */
		for (uint32_t what = steps; what > 0 && !any; what--)
			any = step(what - 1);
	}
}

static inline void run_all(void)
{
	run_dry();
	for (uint32_t i = 0; i < bench.op_count; i++)
		if (!bench.ops[i].passed)
			fail_msg("operation %u of %u is stuck", i, bench.op_count);
	assert_true(staging_idle(bench.staging));
}

#endif /* TESTS_UNIT_TEST_STAGING_BENCH_H */
