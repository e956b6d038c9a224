// SPDX-License-Identifier: BSD-3-Clause
/* engine_check.c - what always holds of a session and its engine between two calls */

#include <assert.h>

#include "client/worker/session_state.h"
#include "tests/check/check.h"

/* Streams that have something of an operation in this slot. */
static uint32_t streams_busy(const struct engine *engine, uint32_t slot)
{
	uint32_t busy = 0;

	for (uint32_t i = 0; i < engine->stream_count; i++)
		busy += !stream_slot_free(engine->streams[i], slot);
	return busy;
}

static uint32_t list_count(const struct task_list *list)
{
	const struct allreduce *t;
	uint32_t count = 0;

	STAILQ_FOREACH(t, list, next)
		count++;
	return count;
}

static void check_list(const struct engine *engine, const struct task_list *list, bool active)
{
	const struct allreduce *task, *t;

	STAILQ_FOREACH(task, list, next) {
		assert(task->status == 0 && task->access != NULL);
		assert(task->segments_scanned <= task->cut.segment_count);
		assert(task->blocks_nonzero <= task->blocks);
		for (t = STAILQ_NEXT(task, next); t != NULL; t = STAILQ_NEXT(t, next))
			assert(t->tag != task->tag && (!active || t->slot != task->slot));
		if (!active) {
			assert(task->segments_scanned == 0);
			assert(!list_has_tag(&engine->active, task->tag));
			continue;
		}
		assert(task->slot < engine->op_slots);
		assert(task->shards_left >= 1);
		assert(task->shards_left <= streams_busy(engine, task->slot));
	}
	assert(task != NULL || *list->stqh_last == NULL);
}

void engine_check(const struct engine *engine)
{
	check_list(engine, &engine->active, true);
	check_list(engine, &engine->waiting, false);
	assert(engine->open == list_count(&engine->active) + list_count(&engine->waiting));
	assert(engine->failed == 0 || list_count(&engine->active) == 0);
	assert(engine->failed == 0 || list_count(&engine->waiting) == 0);
	for (uint32_t i = 0; i < engine->stream_count && engine->failed == 0; i++)
		stream_check(engine->streams[i]);
}

void session_check(const struct session *session)
{
	assert((session->state == SESSION_FAILED) == (session->result != WINNOW_OK));
	assert(session->state != SESSION_RUNNING || session->engine != NULL);
	if (session->engine != NULL)
		engine_check(session->engine);
}
