// SPDX-License-Identifier: BSD-3-Clause
/* reports.c - see reports.h */

#include "aggregator/reports.h"

#include <stdio.h>
#include <string.h>

void reports_init(struct reports *reports)
{
	memset(reports, 0, sizeof(*reports));
	pthread_mutex_init(&reports->lock, NULL);
}

void reports_destroy(struct reports *reports)
{
	pthread_mutex_destroy(&reports->lock);
}

/* With the lock. */
static void wake(const struct reports *reports)
{
	if (reports->wake != NULL && (reports->count > 0 || reports->lost.text[0] != '\0'))
		reports->wake(reports->wake_context);
}

void reports_listen(struct reports *reports, void (*wake_up)(void *context), void *context)
{
	pthread_mutex_lock(&reports->lock);
	reports->wake = wake_up;
	reports->wake_context = context;
	wake(reports);
	pthread_mutex_unlock(&reports->lock);
}

static void put(struct reports *reports, const struct report *report)
{
	pthread_mutex_lock(&reports->lock);
	if (reports->count < REPORTS_MAX)
		reports->list[reports->count++] = *report;
	wake(reports);
	pthread_mutex_unlock(&reports->lock);
}

void reports_stalled(void *context, uint16_t id, const struct channel_stall *stall)
{
	put(context, &(struct report){.kind = REPORT_STALL, .id = id, .stall = *stall});
}

void reports_trouble(void *context, uint16_t id, const struct jobs_trouble *trouble)
{
	put(context, &(struct report){.kind = REPORT_TROUBLE, .id = id, .trouble = *trouble});
}

void reports_lost(void *context, const char *why)
{
	struct reports *reports = context;

	pthread_mutex_lock(&reports->lock);
	why_set(&reports->lost, 0, "%s", why);
	wake(reports);
	pthread_mutex_unlock(&reports->lock);
}

uint32_t reports_take(struct reports *reports, struct report out[REPORTS_MAX], struct why *lost)
{
	uint32_t count;

	pthread_mutex_lock(&reports->lock);
	count = reports->count;
	memcpy(out, reports->list, count * sizeof(out[0]));
	*lost = reports->lost;
	reports->count = 0;
	pthread_mutex_unlock(&reports->lock);
	return count;
}

void reports_forget(struct reports *reports, uint16_t id)
{
	uint32_t kept = 0;

	pthread_mutex_lock(&reports->lock);
	for (uint32_t i = 0; i < reports->count; i++)
		if (reports->list[i].id != id)
			reports->list[kept++] = reports->list[i];
	reports->count = kept;
	pthread_mutex_unlock(&reports->lock);
}
