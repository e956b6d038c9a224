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
#include "tests/unit/test_random.h"

#define ITEMS_MAX 1024
#define GATES_MAX 64

enum call {
	CALL_OPEN,
	CALL_GATE_OPEN,
	CALL_SLOT_OPEN,
	CALL_VIEW_OPEN,
	CALL_POST,
	CALL_WAIT,
	CALL_SCAN,
	CALL_VIEW,
	CALL_UNPACK,
	CALL_EMPTY,
	CALL_FINISH,
	CALL_BUSY,
	CALLS,
};

static const char *const call_names[CALLS] = {
	"open", "gate_open", "slot_open", "view_open", "post",   "wait",
	"scan", "view",      "unpack",    "empty",     "finish", "busy",
};

/* Queues as in gpu.h; each ends in `tell`, which has nothing to wait for but them. */
enum queue { GATE, OUT, IN, QUEUES };

enum work { WORK_OPEN, WORK_SCAN, WORK_VIEW, WORK_UNPACK, WORK_EMPTY, WORK_FINISH };

struct item {
	enum work work;
	struct gpu_gate *gate;
	struct gpu_slot *slot;
	struct gpu_view *view;
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
	uint32_t gates_open, slots_open, views_open, wakes;
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

static inline int fake_open(int device, const struct gpu_hooks *hooks, struct gpu **out, char *why)
{
	int err = fake_call(CALL_OPEN, why);

	assert_int_equal(device, 3);
	fake.wake = hooks->wake;
	fake.context = hooks->context;
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
	gate->gpu = gpu;
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
	slot->gpu = gpu;
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

static inline int fake_view_open(struct gpu *gpu, uint64_t words, struct gpu_view *view, char *why)
{
	int err = fake_call(CALL_VIEW_OPEN, why);

	if (err != 0)
		return err;
	view->gpu = gpu;
	view->bits = malloc(words * sizeof(*view->bits));
	fake.views_open++;
	return 0;
}

static inline void fake_view_close(struct gpu_view *view)
{
	free(view->bits);
	fake.views_open--;
}

static inline int fake_post(struct gpu_gate *gate, void *stream, bool waits, char *why)
{
	int err = fake_call(CALL_POST, why);

	assert_ptr_equal(stream, &fake);
	assert_true(waits);
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

static inline bool fake_moves(void)
{
	return fake.begin[OUT] < fake.end[OUT] || fake.begin[IN] < fake.end[IN];
}

static inline void fake_release(struct gpu_gate *gate)
{
	assert_true(fake.broken || !fake_moves());
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

static inline int fake_view(struct gpu_view *view, const struct bitmap_tensor *tensor, char *why)
{
	int err = fake_call(CALL_VIEW, why);

	assert_false(fake.told);
	assert_true(tensor->count > 0 && tensor->block_elems <= tensor->count);
	atomic_store(&view->done.set, false);
	push(OUT, (struct item){.work = WORK_VIEW, .view = view, .tensor = *tensor}, err);
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

static inline bool fake_has_work(void)
{
	return fake_moves() || fake.begin[GATE] < fake.end[GATE];
}

static inline int fake_busy(struct gpu *gpu, char *why)
{
	int err = fake_call(CALL_BUSY, why);

	(void)gpu;
	if (err != 0)
		return err;
	return fake_moves() ? GPU_MOVES : fake_has_work() ? GPU_TELLS : 0;
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
	.view_open = fake_view_open,
	.view_close = fake_view_close,
	.post = fake_post,
	.wait = fake_wait,
	.release = fake_release,
	.scan = fake_scan,
	.view = fake_view,
	.unpack = fake_unpack,
	.empty = fake_empty,
	.finish = fake_finish,
	.busy = fake_busy,
};

#endif /* TESTS_UNIT_TEST_STAGING_H */
