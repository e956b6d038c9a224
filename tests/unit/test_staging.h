/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_staging.h - a GPU that is a script, behind the table that staging*.c knows: for its tests
 *
 * What is put into one of its queues happens when the test says so, one piece at a time, and queues
 * do not wait for each other but where the table says it. Calls fail as the test says. Whatever
 * breaks the rules of kernels/gpu.h fails the test: a slot that is used while the GPU still has
 * something to do with it, a block that does not fit, a call after the GPU's failure was told.
 */
#ifndef TESTS_UNIT_TEST_STAGING_H
#define TESTS_UNIT_TEST_STAGING_H

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/staging.h"
#include "ebpf/deal.h"
#include "tests/unit/test_random.h"

#define ITEMS_MAX 1024
#define GATES_MAX 64

enum call {
	CALL_OPEN,
	CALL_GATE_OPEN,
	CALL_SLOT_OPEN,
	CALL_POST,
	CALL_WAIT,
	CALL_SCAN,
	CALL_UNPACK,
	CALL_EMPTY,
	CALL_FINISH,
	CALL_BUSY,
	CALLS,
};

static const char *const call_names[CALLS] = {
	"open", "gate_open", "slot_open", "post",   "wait",
	"scan", "unpack",    "empty",     "finish", "busy",
};

/* Queues as in gpu.h; each ends in `tell`, which has nothing to wait for but them. */
enum queue { GATE, OUT, IN, QUEUES };

enum work { WORK_OPEN, WORK_SCAN, WORK_UNPACK, WORK_EMPTY, WORK_FINISH };

struct item {
	enum work work;
	struct gpu_gate *gate;
	struct gpu_slot *slot;
	struct bitmap_tensor tensor;
	bool magnitude;
	struct gpu_unpack unpack;
	uint64_t after; /* pieces of `out` before it */
	bool mute;      /* the call that put it there has failed: it tells nobody */
};

struct gpu {
	struct item items[QUEUES][ITEMS_MAX];
	uint64_t begin[QUEUES], end[QUEUES];
	uint32_t calls[CALLS];
	enum call fail; /* its call number fail_at fails; CALLS: none */
	uint32_t fail_at;
	bool met;
	bool broken;  /* nothing moves any more, and every call fails */
	bool told;    /* staging has said that it has failed */
	bool no_wait; /* streams cannot wait */
	struct gpu_gate *gates[GATES_MAX];
	uint32_t turns[GATES_MAX]; /* the last one that a stream may wait for */
	uint32_t gates_open, slots_open, wakes;
	uint64_t out_bytes, in_bytes;
	void (*wake)(void *context);
	void *context;
};

/* What a slot's `pinned` points to. */
struct fake_slot {
	struct gpu_slot_size size;
	uint32_t pending; /* pieces in queues */
};

static struct gpu fake;

static inline int fake_begin(void **state)
{
	(void)state;
	memset(&fake, 0, sizeof(fake));
	fake.fail = CALLS;
	return 0;
}

/* ---- calls ---- */

static inline int fake_call(enum call call, char *why)
{
	bool due = fake.fail == call && fake.calls[call] + 1 == fake.fail_at;

	fake.calls[call]++;
	if (!due && !fake.broken)
		return 0;
	fake.met = fake.met || due;
	snprintf(why, GPU_WHY_BYTES, "%s fails", call_names[call]);
	return -EIO;
}

static inline struct fake_slot *fake_slot_of(const struct gpu_slot *slot)
{
	assert_non_null(slot->pinned);
	return slot->pinned;
}

/* What fails may have begun: it happens, and nobody is told. */
static inline void push(enum queue queue, struct item item, int err)
{
	assert_true(fake.end[queue] - fake.begin[queue] < ITEMS_MAX);
	item.mute = err != 0;
	if (item.slot != NULL)
		fake_slot_of(item.slot)->pending++;
	fake.items[queue][fake.end[queue]++ % ITEMS_MAX] = item;
}

static inline int fake_locate(const void *memory, int *device, char *why)
{
	(void)memory, (void)device, (void)why;
	fail_msg("staging asks where memory is");
	return -EIO;
}

static inline int fake_admit(int device, void *stream, char *why)
{
	(void)device, (void)stream, (void)why;
	fail_msg("staging asks for a stream's leave");
	return -EIO;
}

static inline int fake_open(int device, void (*wake)(void *context), void *context,
                            struct gpu **out, char *why)
{
	int err = fake_call(CALL_OPEN, why);

	assert_int_equal(device, 3);
	fake.wake = wake;
	fake.context = context;
	if (err == 0)
		*out = &fake;
	return err;
}

static inline void fake_close(struct gpu *gpu)
{
	assert_ptr_equal(gpu, &fake);
	assert_int_equal(fake.gates_open, 0);
	assert_int_equal(fake.slots_open, 0);
}

static inline int fake_gate_open(struct gpu *gpu, struct gpu_gate *gate, char *why)
{
	int err = fake_call(CALL_GATE_OPEN, why);

	if (err != 0)
		return err;
	assert_true(fake.gates_open < GATES_MAX);
	gate->open.gpu = gate->passed.gpu = gpu;
	gate->word = calloc(1, sizeof(*gate->word));
	fake.turns[fake.gates_open] = 0;
	fake.gates[fake.gates_open++] = gate;
	return 0;
}

static inline uint32_t fake_gate_index(const struct gpu_gate *gate)
{
	uint32_t i = 0;

	while (i < fake.gates_open && fake.gates[i] != gate)
		i++;
	assert_true(i < fake.gates_open);
	return i;
}

static inline void fake_gate_close(struct gpu_gate *gate)
{
	uint32_t i = fake_gate_index(gate);

	fake.gates[i] = fake.gates[--fake.gates_open];
	fake.turns[i] = fake.turns[fake.gates_open];
	free(gate->word);
}

/* Each part is memory of its own, so that the sanitizer sees who leaves it. */
static inline int fake_slot_open(struct gpu *gpu, const struct gpu_slot_size *size,
                                 struct gpu_slot *slot, char *why)
{
	struct fake_slot *own;
	int err = fake_call(CALL_SLOT_OPEN, why);

	if (err != 0)
		return err;
	own = calloc(1, sizeof(*own));
	own->size = *size;
	slot->pinned = own;
	slot->scanned.gpu = slot->emptied.gpu = gpu;
	slot->magnitude = malloc((2 + size->blocks / 64) * sizeof(uint64_t));
	slot->bits = slot->magnitude + 1;
	slot->packed = malloc(size->bytes);
	slot->sums = malloc(size->bytes);
	slot->plans = malloc((size_t)size->plan_count * GPU_PLAN_BYTES);
	fake.slots_open++;
	return 0;
}

static inline void fake_slot_close(struct gpu_slot *slot)
{
	if (slot->pinned == NULL)
		return; /* it could not be opened */
	assert_true(fake.broken || fake_slot_of(slot)->pending == 0);
	free(slot->magnitude);
	free(slot->packed);
	free(slot->sums);
	free(slot->plans);
	free(slot->pinned);
	fake.slots_open--;
}

static inline int fake_post(struct gpu_gate *gate, void *stream, char *why)
{
	int err = fake_call(CALL_POST, why);

	assert_ptr_equal(stream, &fake);
	gate->turn++;
	atomic_store(&gate->open.set, false);
	atomic_store(&gate->passed.set, false);
	if (err == 0) {
		push(GATE, (struct item){.work = WORK_OPEN, .gate = gate}, 0);
		fake.turns[fake_gate_index(gate)] = gate->turn;
	}
	return err;
}

static inline int fake_wait(struct gpu_gate *gate, void *stream, char *why)
{
	(void)gate;
	assert_ptr_equal(stream, &fake);
	return fake.no_wait ? -EAGAIN : fake_call(CALL_WAIT, why);
}

static inline void fake_release(struct gpu_gate *gate)
{
	assert_true(fake.told); /* before a stream goes on for nothing */
	*gate->word = gate->turn;
}

static inline int fake_scan(struct gpu_slot *slot, const struct bitmap_tensor *tensor,
                            bool magnitude, char *why)
{
	struct fake_slot *own = fake_slot_of(slot);
	int err = fake_call(CALL_SCAN, why);

	assert_false(fake.told);
	assert_int_equal(own->pending, 0); /* it is nobody's */
	assert_true(tensor->count == 0 || tensor->block_elems <= tensor->count);
	assert_true(bitmap_block_count(tensor->count, tensor->block_elems) <= own->size.blocks);
	atomic_store(&slot->scanned.set, false);
	memset(slot->magnitude, 0xa5, (2 + own->size.blocks / 64) * sizeof(uint64_t));
	memset(slot->packed, 0xa5, own->size.bytes);
	push(OUT,
	     (struct item){
		     .work = WORK_SCAN, .slot = slot, .tensor = *tensor, .magnitude = magnitude},
	     err);
	return err;
}

static inline int fake_unpack(struct gpu_slot *slot, const struct gpu_unpack *what, char *why)
{
	int err = fake_call(CALL_UNPACK, why);

	assert_false(fake.told);
	assert_true(what->plan < fake_slot_of(slot)->size.plan_count);
	push(IN, (struct item){.work = WORK_UNPACK, .slot = slot, .unpack = *what}, err);
	return err;
}

static inline int fake_empty(struct gpu_slot *slot, char *why)
{
	int err = fake_call(CALL_EMPTY, why);

	assert_false(fake.told);
	atomic_store(&slot->emptied.set, false);
	push(IN, (struct item){.work = WORK_EMPTY, .slot = slot}, err);
	return err;
}

static inline int fake_finish(struct gpu_gate *gate, bool all, char *why)
{
	struct item item = {.work = WORK_FINISH, .gate = gate, .after = all ? fake.end[OUT] : 0};
	int err = fake_call(CALL_FINISH, why);

	assert_false(fake.told);
	atomic_store(&gate->passed.set, false);
	push(IN, item, err);
	return err;
}

static inline int fake_busy(struct gpu *gpu, char *why)
{
	int err = fake_call(CALL_BUSY, why);

	(void)gpu;
	for (enum queue q = GATE; q < QUEUES && err == 0; q++)
		if (fake.begin[q] < fake.end[q])
			return 1;
	return err;
}

static const struct gpu_calls fake_calls = {
	.version = "fake",
	.about = "a script",
	.locate = fake_locate,
	.admit = fake_admit,
	.open = fake_open,
	.close = fake_close,
	.gate_open = fake_gate_open,
	.gate_close = fake_gate_close,
	.slot_open = fake_slot_open,
	.slot_close = fake_slot_close,
	.post = fake_post,
	.wait = fake_wait,
	.release = fake_release,
	.scan = fake_scan,
	.unpack = fake_unpack,
	.empty = fake_empty,
	.finish = fake_finish,
	.busy = fake_busy,
};

/* ---- what happens ---- */

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

static inline void scan_run(const struct item *item)
{
	const struct bitmap_tensor *tensor = &item->tensor;
	struct gpu_slot *slot = item->slot;
	uint64_t blocks = bitmap_block_count(tensor->count, tensor->block_elems), packed = 0;
	size_t elem = dtype_bytes(tensor->dtype), space = tensor->block_elems * elem;

	if (blocks == 0)
		return;
	memset(slot->bits, 0, bitmap_word_count(blocks) * sizeof(uint64_t));
	for (uint64_t block = 0; block < blocks; block++) {
		const uint8_t *from = (const uint8_t *)tensor->data + block * space;
		uint64_t left = tensor->count * elem - block * space;
		size_t bytes = left < space ? left : space;

		if (is_zero(from, bytes))
			continue;
		assert_true((packed + 1) * space <= fake_slot_of(slot)->size.bytes);
		slot->bits[block / 64] |= UINT64_C(1) << block % 64;
		memset(slot->packed + packed * space, 0, space);
		memcpy(slot->packed + packed++ * space, from, bytes);
	}
	if (item->magnitude)
		*slot->magnitude = magnitude_of(tensor->data, tensor->count);
	fake.out_bytes += packed * space + (1 + bitmap_word_count(blocks)) * sizeof(uint64_t);
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

static inline void set_signal(struct gpu_signal *signal)
{
	assert_ptr_equal(signal->gpu, &fake);
	atomic_store(&signal->set, true);
	fake.wake(fake.context);
}

static inline void tell(const struct item *item)
{
	if (item->mute)
		return;
	if (item->work == WORK_OPEN)
		set_signal(&item->gate->open);
	else if (item->work == WORK_SCAN)
		set_signal(&item->slot->scanned);
	else if (item->work == WORK_EMPTY)
		set_signal(&item->slot->emptied);
	if (item->work != WORK_FINISH)
		return;
	*item->gate->word = item->gate->turn;
	set_signal(&item->gate->passed);
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
	else if (item->work == WORK_UNPACK)
		unpack_run(item);
	tell(item);
	return true;
}

#endif /* TESTS_UNIT_TEST_STAGING_H */
