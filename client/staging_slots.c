// SPDX-License-Identifier: BSD-3-Clause
/*
 * staging_slots.c - the slots of a GPU, and who gets one
 *
 * Operations that have begun must be able to go on in any order (PROTOCOL.md section 6.3), so each
 * is sure of one slot: callers make more when there are not enough, and nobody takes a second one that
 * another may need as its first. Memory grows while the first operations are submitted, and is kept:
 * freeing waits for all that the GPU does, and streams may be waiting for us.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/staging_impl.h"

#define AHEAD_BYTES (256u << 20)    /* pinned memory for more slots than are needed to go on */
#define SLOT_BYTES_MIN (256u << 10) /* of blocks, twice in a slot */

int slot_bytes_for(const struct staging *s, const struct staging_post *what, uint64_t *out)
{
	struct geometry_input input = {
		.count = what->count,
		.block_elems = what->block_elems,
		.elem_bytes = what->elem_bytes,
		.shard_count = s->config.shard_count,
		.payload = s->config.payload,
		.fixed32 = true, /* never eager: room for both */
	};
	struct geometry cut;
	uint64_t groups;

	if (!geometry_compute(&input, &cut))
		return -EINVAL;
	groups = cut.shard_blocks < cut.segment_blocks ? cut.shard_blocks : cut.segment_blocks;
	*out = groups * cut.shard_count * cut.block_bytes;
	return 0;
}

static void slot_free(struct staging *s, struct staging_slot *slot)
{
	s->config.calls->slot_close(&slot->gpu);
	free(slot->ranks);
	free(slot->plans);
	free(slot);
}

void slots_free(struct staging *s, struct staging_slot *list)
{
	struct staging_slot *next;

	for (struct staging_slot *slot = list; slot != NULL; slot = next) {
		next = slot->next;
		slot_free(s, slot);
	}
}

static int slot_new(struct staging *s, uint64_t bytes, struct staging_slot **out, char *why)
{
	uint64_t blocks = (uint64_t)s->config.shard_count * WIRE_SEGMENT_BLOCKS_MAX;
	struct gpu_slot_size size = {
		.bytes = bytes, .blocks = blocks, .plan_count = s->config.shard_count};
	struct staging_slot *slot = calloc(1, sizeof(*slot));
	int err = -ENOMEM;

	if (slot == NULL)
		goto fail;
	slot->bytes = bytes;
	slot->ranks = calloc(blocks / 64, sizeof(*slot->ranks));
	slot->plans = calloc(s->config.shard_count, sizeof(*slot->plans));
	if (slot->ranks == NULL || slot->plans == NULL)
		goto fail;
	err = s->config.calls->slot_open(s->gpu, &size, &slot->gpu, why);
	if (err != 0)
		goto fail;
	*out = slot;
	return 0;
fail:
	if (err == -ENOMEM)
		snprintf(why, GPU_WHY_BYTES, "out of memory");
	if (slot != NULL)
		slot_free(s, slot);
	return err;
}

static void slot_push(struct staging_slot **list, struct staging_slot *slot)
{
	slot->next = *list;
	*list = slot;
}

/* From now on slots have so much room; those that have less are put aside. Under the lock. */
static void enlarge(struct staging *s, uint64_t bytes)
{
	uint64_t usual = (uint64_t)s->config.shard_count * WIRE_SEGMENT_BYTES;
	uint64_t twice = 2 * s->slot_bytes < usual ? 2 * s->slot_bytes : usual;

	s->slot_bytes = bytes > twice ? bytes : twice;
	if (s->slot_bytes < SLOT_BYTES_MIN)
		s->slot_bytes = SLOT_BYTES_MIN;
	while (s->free_slots != NULL) {
		struct staging_slot *slot = s->free_slots;

		s->free_slots = slot->next;
		slot_push(&s->small_slots, slot);
	}
	s->slot_count = s->free_count = 0;
}

/* Slots that operations may need as their first. */
static uint32_t reserve(const struct staging *s)
{
	return s->wanting < s->config.op_slots ? s->wanting : s->config.op_slots;
}

static bool is_short_of_slots(const struct staging *s)
{
	uint64_t ahead = AHEAD_BYTES / (2 * s->slot_bytes);

	ahead = ahead < 2 ? 2 : ahead > STAGING_AHEAD_MAX ? STAGING_AHEAD_MAX : ahead;
	return s->slot_count < ahead || s->free_count < reserve(s);
}

/* One operation more, whose segments have up to so many bytes: are there slots enough? */
int slots_grow(struct staging *s, uint64_t bytes, char *why)
{
	int err = 0;

	pthread_mutex_lock(&s->growth);
	pthread_mutex_lock(&s->lock);
	s->wanting++;
	if (bytes > s->slot_bytes || s->slot_bytes == 0)
		enlarge(s, bytes);
	while (err == 0 && is_short_of_slots(s)) {
		uint64_t slot_bytes = s->slot_bytes;
		struct staging_slot *slot;

		pthread_mutex_unlock(&s->lock);
		err = slot_new(s, slot_bytes, &slot, why);
		pthread_mutex_lock(&s->lock);
		if (err != 0)
			break;
		slot_push(&s->free_slots, slot);
		s->slot_count++;
		s->free_count++;
	}
	if (err != 0)
		s->wanting--;
	pthread_mutex_unlock(&s->lock);
	pthread_mutex_unlock(&s->growth);
	return err;
}

struct staging_slot *slot_take(struct staging_op *op)
{
	struct staging *s = op->staging;
	struct staging_slot *slot = NULL;

	pthread_mutex_lock(&s->lock);
	if (op->wants || s->free_count > reserve(s))
		slot = s->free_slots;
	if (slot != NULL) {
		s->free_slots = slot->next;
		s->free_count--;
		s->wanting -= op->wants;
		op->wants = false;
		op->slot_count++;
	}
	pthread_mutex_unlock(&s->lock);
	return slot;
}

/* The operation is done with its slot; without one, it may want another. */
void slot_return(struct staging_op *op, struct staging_slot *slot)
{
	struct staging *s = op->staging;

	op->slots[slot->number % STAGING_AHEAD_MAX] = NULL;
	pthread_mutex_lock(&s->lock);
	if (slot->bytes < s->slot_bytes) {
		slot_push(&s->small_slots, slot);
	} else {
		slot_push(&s->free_slots, slot);
		s->free_count++;
	}
	op->slot_count--;
	if (op->slot_count == 0 && !op->finishing && op->launched < op->task->cut.segment_count) {
		op->wants = true;
		s->wanting++;
	}
	pthread_mutex_unlock(&s->lock);
}
