/* SPDX-License-Identifier: BSD-3-Clause */
/* task_list.h - operations in the order in which they came */
#ifndef CLIENT_TASK_LIST_H
#define CLIENT_TASK_LIST_H

#include <stddef.h>

#include "client/worker/allreduce.h"

struct task_list {
	struct allreduce *first, *last;
};

static inline void list_append(struct task_list *list, struct allreduce *task)
{
	task->next = NULL;
	if (list->first == NULL)
		list->first = task;
	else
		list->last->next = task;
	list->last = task;
}

static inline void list_remove(struct task_list *list, struct allreduce *task)
{
	struct allreduce *before = NULL;

	for (struct allreduce *t = list->first; t != task; t = t->next)
		before = t;
	if (before == NULL)
		list->first = task->next;
	else
		before->next = task->next;
	if (list->last == task)
		list->last = before;
}

static inline uint32_t list_count(const struct task_list *list)
{
	uint32_t count = 0;

	for (const struct allreduce *t = list->first; t != NULL; t = t->next)
		count++;
	return count;
}

static inline bool list_has_tag(const struct task_list *list, uint64_t tag)
{
	const struct allreduce *t = list->first;

	while (t != NULL && t->tag != tag)
		t = t->next;
	return t != NULL;
}

#endif /* CLIENT_TASK_LIST_H */
