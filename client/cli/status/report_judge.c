// SPDX-License-Identifier: BSD-3-Clause
/* report_judge.c - what makes an aggregator degraded: people wait, or will soon */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/status/report.h"
#include "client/cli/table.h"

#define RANKS_NAMED 4

struct verdict {
	struct report_problem *problems;
	uint32_t count;
};

static void add(struct verdict *verdict, const char *code, const char *job, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static void add(struct verdict *verdict, const char *code, const char *job, const char *format, ...)
{
	struct report_problem *problem = &verdict->problems[verdict->count];
	va_list args;

	if (verdict->count == REPORT_PROBLEMS_MAX)
		return;
	verdict->count++;
	problem->code = code;
	snprintf(problem->job, sizeof(problem->job), "%s", job);
	va_start(args, format);
	vsnprintf(problem->text, sizeof(problem->text), format, args);
	va_end(args);
}

/* ---- "ranks 1 (host-a), 3 (host-b) and 2 more" ---- */

struct names {
	char text[320];
	size_t used;
	uint32_t count;
};

static const char *host_of(const struct report_job *job, uint32_t rank)
{
	for (uint32_t i = 0; i < job->worker_count; i++)
		if (job->workers[i].rank == rank)
			return job->workers[i].host;
	return "";
}

static void name_add(struct names *names, const struct report_job *job, uint32_t rank)
{
	const char *host = host_of(job, rank);
	int length;

	if (names->count++ >= RANKS_NAMED || names->used >= sizeof(names->text))
		return;
	length = snprintf(names->text + names->used, sizeof(names->text) - names->used,
	                  "%s%u%s%s%s", names->count > 1 ? ", " : "", rank,
	                  *host != '\0' ? " (" : "", host, *host != '\0' ? ")" : "");
	names->used += (size_t)length;
}

static const char *names_end(struct names *names, uint32_t total)
{
	uint32_t named = names->count < RANKS_NAMED ? names->count : RANKS_NAMED;

	if (total > named && names->used < sizeof(names->text))
		snprintf(names->text + names->used, sizeof(names->text) - names->used,
		         " and %u more", total - named);
	return names->text;
}

/* ---- the reasons ---- */

static void judge_waiting(struct verdict *verdict, const struct report_job *job, double late_s)
{
	struct names names = {0};
	char age[16];

	if (job->missing == 0 || job->waited_s < late_s)
		return;
	for (uint32_t i = 0; i < job->rank_count; i++)
		name_add(&names, job, job->ranks[i]);
	add(verdict, "straggler", job->name, "others have waited %s for rank %s, which %s",
	    text_age(job->waited_s, age), names_end(&names, job->missing),
	    job->for_data ? "sent no data" : "did not call the operation");
}

/* Not running: some have not come, or their UDP does not. */
static void judge_joining(struct verdict *verdict, const struct report_job *job, double late_s)
{
	bool forming = strcmp(job->state, "forming") == 0;
	struct names names = {0};
	char age[16];

	if (strcmp(job->state, "running") == 0 || job->state_s < late_s)
		return;
	for (uint32_t i = 0; i < job->worker_count; i++)
		if (strcmp(job->workers[i].state, "ready") != 0 &&
		    (!forming || strcmp(job->workers[i].state, "missing") == 0))
			name_add(&names, job, job->workers[i].rank);
	add(verdict, "joining", job->name, "%s for %s: %s rank %s", job->state,
	    text_age(job->state_s, age), forming ? "waits for" : "no UDP answer from",
	    names_end(&names, names.count));
}

static void judge_silence(struct verdict *verdict, const struct report_job *job)
{
	const struct report_worker *worst = NULL;
	struct names names = {0};
	char age[16], limit[16];

	if (!(job->silence_limit_s > 0))
		return;
	for (uint32_t i = 0; i < job->worker_count; i++) {
		const struct report_worker *worker = &job->workers[i];

		if (worker->silent_s < job->silence_limit_s / 2)
			continue;
		name_add(&names, job, worker->rank);
		if (worst == NULL || worker->silent_s > worst->silent_s)
			worst = worker;
	}
	if (worst == NULL)
		return;
	add(verdict, "silent", job->name,
	    "nothing was heard for %s from rank %s: lost, and the job with it, after %s",
	    text_age(worst->silent_s, age), names_end(&names, names.count),
	    text_age(job->silence_limit_s, limit));
}

uint32_t report_judge(const struct report *report, double late_s,
                      struct report_problem problems[REPORT_PROBLEMS_MAX])
{
	struct verdict verdict = {.problems = problems};

	if (report->draining)
		add(&verdict, "draining", "", "draining: it takes no new jobs");
	for (uint32_t i = 0; i < report->job_count; i++) {
		judge_joining(&verdict, &report->jobs[i], late_s);
		judge_waiting(&verdict, &report->jobs[i], late_s);
		judge_silence(&verdict, &report->jobs[i]);
		if (report->jobs[i].trouble[0] != '\0')
			add(&verdict, "path", report->jobs[i].name, "%s", report->jobs[i].trouble);
	}
	return verdict.count;
}
