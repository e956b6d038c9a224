/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_staging_runs.h - what the scripted GPU does when it is told to: kernels as plain loops
 */
#ifndef TESTS_UNIT_TEST_STAGING_RUNS_H
#define TESTS_UNIT_TEST_STAGING_RUNS_H

#include "ebpf/deal.h"
#include "tests/unit/test_staging.h"

static inline bool is_zero(const uint8_t *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (data[i] != 0)
			return false;
	return true;
}

static inline uint64_t magnitude_of(const float *data, uint64_t count)
{
	uint32_t most = 0, bits;

	for (uint64_t i = 0; i < count; i++) {
		memcpy(&bits, &data[i], sizeof(bits));
		most = (bits & INT32_MAX) > most ? bits & INT32_MAX : most;
	}
	return most;
}

/* The bits of a tensor; the blocks themselves to `packed`, unless that is NULL. How many there are. */
static inline uint64_t find(const struct bitmap_tensor *tensor, uint64_t *bits, uint8_t *packed,
                            size_t room)
{
	uint64_t blocks = bitmap_block_count(tensor->count, tensor->block_elems), found = 0;
	size_t elem = dtype_bytes(tensor->dtype), space = tensor->block_elems * elem;

	memset(bits, 0, bitmap_word_count(blocks) * sizeof(*bits));
	for (uint64_t block = 0; block < blocks; block++) {
		const uint8_t *from = (const uint8_t *)tensor->data + block * space;
		uint64_t left = tensor->count * elem - block * space;
		size_t bytes = left < space ? left : space;

		if (is_zero(from, bytes))
			continue;
		bits[block / 64] |= UINT64_C(1) << block % 64;
		if (packed != NULL) {
			assert_true((found + 1) * space <= room);
			memset(packed + found * space, 0, space);
			memcpy(packed + found * space, from, bytes);
		}
		found++;
	}
	return found;
}

static inline void scan_run(const struct item *item)
{
	const struct bitmap_tensor *tensor = &item->tensor;
	struct gpu_slot *slot = item->slot;
	uint64_t words = bitmap_word_count(bitmap_block_count(tensor->count, tensor->block_elems));
	uint64_t space = tensor->block_elems * dtype_bytes(tensor->dtype), packed;

	if (words == 0)
		return;
	packed = find(tensor, slot->bits, slot->packed, fake_slot_of(slot)->size.bytes);
	if (item->magnitude)
		*slot->magnitude = magnitude_of(tensor->data, tensor->count);
	fake.out_bytes += packed * space + (1 + words) * sizeof(uint64_t);
}

static inline void view_run(const struct item *item)
{
	const struct bitmap_tensor *tensor = &item->tensor;
	uint64_t blocks = bitmap_block_count(tensor->count, tensor->block_elems);

	(void)find(tensor, item->view->bits, NULL, 0);
	fake.out_bytes += bitmap_word_count(blocks) * sizeof(uint64_t);
}

/* A number as it comes, as int32: what its sum is. */
static inline float decoded(const uint8_t *from, int shift, uint32_t divisor)
{
	int32_t value;

	memcpy(&value, from, sizeof(value));
	return ldexpf((float)value, -shift) / (float)divisor;
}

static inline void block_write(const struct gpu_unpack *what, uint64_t block, const uint8_t *from)
{
	size_t elem = dtype_bytes(what->shape.dtype);
	uint64_t first = block * what->shape.block_elems, count = what->shape.count - first;
	uint8_t *to = (uint8_t *)what->recv + first * elem;

	count = count < what->shape.block_elems ? count : what->shape.block_elems;
	if (from == NULL) {
		memset(to, 0, count * elem);
	} else if (what->form.fixed) {
		for (uint64_t i = 0; i < count; i++) {
			float value = decoded(from + 4 * i, what->form.shift, what->form.divisor);

			memcpy(to + 4 * i, &value, sizeof(value));
		}
	} else {
		memcpy(to, from, count * elem);
	}
}

static inline void unpack_run(const struct item *item)
{
	const struct gpu_unpack *what = &item->unpack;
	const struct bitmap_cuda_deal *deal = &what->deal;
	struct fake_slot *own = fake_slot_of(item->slot);
	const uint8_t *plan = item->slot->plans + (size_t)what->plan * GPU_PLAN_BYTES;
	const uint64_t *bits = (const uint64_t *)(const void *)plan;
	uint64_t words = bitmap_word_count(deal->index_count), blocks;
	const uint32_t *ranks = (const uint32_t *)(const void *)(plan + words * 8);
	size_t space = what->shape.block_elems * dtype_bytes(what->shape.dtype);
	uint32_t count = 0;

	blocks = bitmap_block_count(what->shape.count, what->shape.block_elems);
	for (uint64_t i = 0; i < deal->index_count; i++) {
		uint64_t index = deal->first_index + i;
		uint64_t block = deal->shard_count == 1
		                         ? index
		                         : deal_block(deal->shard_count, deal->shard, index);
		bool set = bits[i / 64] >> (i % 64) & 1;

		if (i % 64 == 0)
			assert_int_equal(ranks[i / 64], count);
		if (block < blocks && (set || what->clear_others))
			block_write(what, block, set ? what->sums + count * space : NULL);
		count += set;
	}
	assert_int_equal(ranks[words], count);
	assert_true(what->sums >= item->slot->sums &&
	            what->sums + count * space <= item->slot->sums + own->size.bytes);
	fake.in_bytes += count * space + words * 8 + (words + 1) * 4;
}

static inline void set_signal(const struct gpu *gpu, struct gpu_signal *signal)
{
	assert_ptr_equal(gpu, &fake);
	atomic_store(&signal->set, true);
	fake.wake(fake.context);
}

static inline void tell(const struct item *item)
{
	if (item->mute)
		return;
	if (item->work == WORK_OPEN)
		set_signal(item->gate->gpu, &item->gate->open);
	else if (item->work == WORK_SCAN)
		set_signal(item->slot->gpu, &item->slot->scanned);
	else if (item->work == WORK_VIEW)
		set_signal(item->view->gpu, &item->view->done);
	else if (item->work == WORK_EMPTY)
		set_signal(item->slot->gpu, &item->slot->emptied);
	if (item->work != WORK_FINISH)
		return;
	*item->gate->word = item->gate->turn;
	set_signal(item->gate->gpu, &item->gate->passed);
}

/* The next piece of a queue happens. False: there is none that can. */
static inline bool fake_run(enum queue queue)
{
	struct item *item = &fake.items[queue][fake.begin[queue] % ITEMS_MAX];

	if (fake.broken || fake.begin[queue] == fake.end[queue] || item->after > fake.begin[OUT])
		return false;
	fake.begin[queue]++;
	if (item->slot != NULL)
		fake_slot_of(item->slot)->pending--;
	if (item->work == WORK_SCAN)
		scan_run(item);
	else if (item->work == WORK_VIEW)
		view_run(item);
	else if (item->work == WORK_UNPACK)
		unpack_run(item);
	tell(item);
	return true;
}

#endif /* TESTS_UNIT_TEST_STAGING_RUNS_H */
