/* SPDX-License-Identifier: BSD-3-Clause */
/* engine_state.h - the engine's state; for engine.c and tests/check only */
#ifndef CLIENT_ENGINE_STATE_H
#define CLIENT_ENGINE_STATE_H

#include <sys/queue.h>

#include "client/worker/engine.h"

/* Operations in the order in which they were submitted. */
STAILQ_HEAD(task_list, allreduce);

static inline bool list_has_tag(const struct task_list *list, uint64_t tag)
{
	const struct allreduce *t;

	STAILQ_FOREACH(t, list, next)
		if (t->tag == tag)
			return true;
	return false;
}

struct engine {
	struct bitmap_pool *pool;
	uint32_t stream_count;
	uint32_t eager_count; /* of these, the first: those that small operations use */
	uint32_t op_slots;
	uint32_t payload;
	uint32_t rank, world;
	int failed; /* status of engine_fail(), or 0 */
	uint64_t progress_us;
	struct task_list waiting; /* for a slot */
	struct task_list active;  /* in slots, oldest first */
	uint32_t open;            /* in both */
	uint64_t *found;      /* [stream_count * SEGMENT_WORDS] bits of one scan, in tensor order */
	uint64_t *shard_bits; /* [stream_count * SEGMENT_WORDS] the same, by shard */
	struct stream *streams[];
};

#endif /* CLIENT_ENGINE_STATE_H */
