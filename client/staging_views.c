// SPDX-License-Identifier: BSD-3-Clause
/*
 * staging_views.c - bitmaps of whole tensors on a GPU, for traces
 *
 * Before an operation's first segment the GPU scans its whole tensor once more, in blocks as small as
 * the trace wants, and copies the bits out. Room for them is made by callers, as for slots, and
 * kept for later operations.
 */

#include <stdlib.h>

#include "client/staging_impl.h"

static struct staging_view *view_new(struct staging *s, uint64_t words)
{
	struct staging_view *view = calloc(1, sizeof(*view));
	char why[GPU_WHY_BYTES];

	if (view == NULL)
		return NULL;
	view->words = 64;
	while (view->words < words)
		view->words *= 2; /* buckets of nearly one size share it */
	if (s->config.calls->view_open(s->gpu, view->words, &view->gpu, why) == 0)
		return view;
	free(view);
	return NULL;
}

void views_free(struct staging *s, struct staging_view *list)
{
	struct staging_view *next;

	for (struct staging_view *view = list; view != NULL; view = next) {
		next = view->next;
		s->config.calls->view_close(&view->gpu);
		free(view);
	}
}

static uint64_t word_count(uint64_t count, uint32_t fine)
{
	return bitmap_word_count(bitmap_block_count(count, fine));
}

void view_take(struct staging_op *op, uint64_t count, uint32_t fine)
{
	struct staging *s = op->staging;
	struct staging_view **at = &s->views, *view;

	if (fine == 0 || count == 0)
		return;
	op->fine = fine;
	pthread_mutex_lock(&s->lock);
	while (*at != NULL && (*at)->words < word_count(count, fine))
		at = &(*at)->next;
	view = *at;
	if (view != NULL)
		*at = view->next;
	pthread_mutex_unlock(&s->lock);
	op->view = view != NULL ? view : view_new(s, word_count(count, fine));
}

void view_return(struct staging_op *op)
{
	struct staging *s = op->staging;
	struct staging_view *view = op->view;

	if (view == NULL)
		return;
	op->view = NULL;
	pthread_mutex_lock(&s->lock);
	view->next = s->views;
	s->views = view;
	pthread_mutex_unlock(&s->lock);
}

int view_begin(struct staging_op *op, char *why)
{
	const struct allreduce *task = op->task;
	struct bitmap_tensor tensor = {
		.data = task->send,
		.count = task->count,
		.block_elems = op->fine < task->count ? op->fine : task->count,
		.dtype = task->dtype,
	};

	if (op->view == NULL || op->viewed)
		return 0;
	op->viewed = true;
	op->bytes.out += word_count(task->count, op->fine) * sizeof(uint64_t);
	return op->staging->config.calls->view(&op->view->gpu, &tensor, why);
}

bool view_look(struct staging_op *op, bool over)
{
	struct staging *s = op->staging;
	bool there = op->view != NULL && op->viewed &&
	             atomic_load_explicit(&op->view->gpu.done.set, memory_order_acquire);

	if (op->view == NULL || (!there && !over))
		return false;
	if (there)
		s->config.viewed(op->context, op->fine, op->view->gpu.bits);
	view_return(op);
	return true;
}

bool staging_viewed(const struct staging_op *op, bool *lacks)
{
	*lacks = op->fine != 0 && op->view == NULL && !op->viewed;
	return op->fine != 0 && !*lacks;
}
