// SPDX-License-Identifier: BSD-3-Clause
/* report.c - see status.h; an aggregator is degraded when workers wait, or soon will */

#include "client/cli/status/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define RANKS_NAMED 4

/* ---- fields ---- */

json_t *report_parse(const char *text, size_t bytes, struct why *why)
{
	json_t *root = json_loadb(text, bytes, 0, NULL);

	if (json_is_string(json_object_get(root, "version")) &&
	    json_is_array(json_object_get(root, "jobs")))
		return root;
	why_set(why, 0, "the program that answers is not winnowd: %s",
	        root == NULL ? "no JSON" : "no list of jobs");
	json_decref(root);
	return NULL;
}

double report_number(const json_t *object, const char *name)
{
	double value = json_number_value(json_object_get(object, name));

	return value > 0 ? value : 0;
}

uint32_t report_whole(const json_t *object, const char *name)
{
	double value = report_number(object, name);

	return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

const char *report_text(const json_t *object, const char *name)
{
	const char *value = json_string_value(json_object_get(object, name));

	return value != NULL ? value : "";
}

static bool text_is(const json_t *object, const char *name, const char *text)
{
	return strcmp(report_text(object, name), text) == 0;
}

/* ---- what is wrong ---- */

static void problem_add(json_t *problems, const char *code, const json_t *job, const char *format,
                        ...) __attribute__((format(printf, 4, 5)));

static void problem_add(json_t *problems, const char *code, const json_t *job, const char *format,
                        ...)
{
	char name[REPORT_NAME_BYTES], text[REPORT_TEXT_BYTES];
	va_list args;

	if (json_array_size(problems) == REPORT_PROBLEMS_MAX)
		return;
	text_safe(name, sizeof(name), report_text(job, "name"));
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	text_safe(text, sizeof(text), text);
	json_array_append_new(
		problems, json_pack("{s:s, s:s, s:s}", "code", code, "job", name, "text", text));
}

/* Builds a text such as "1 (host-a), 3 (host-b) and 2 more". */
struct names {
	char text[RANKS_NAMED * 80];
	uint32_t count;
};

static void name_add(struct names *names, const json_t *job, uint32_t rank)
{
	const char *host = "";
	json_t *worker;
	size_t index;

	if (names->count++ >= RANKS_NAMED)
		return;
	json_array_foreach(json_object_get(job, "workers"), index, worker)
	{
		if (report_whole(worker, "rank") != rank)
			continue;
		host = report_text(worker, "host");
		break;
	}
	text_add(names->text, sizeof(names->text), "%s%u%s%.60s%s",
	         names->text[0] != '\0' ? ", " : "", rank, *host != '\0' ? " (" : "", host,
	         *host != '\0' ? ")" : "");
}

static const char *names_end(struct names *names, uint32_t total)
{
	uint32_t named = names->count < RANKS_NAMED ? names->count : RANKS_NAMED;

	if (total > named)
		text_add(names->text, sizeof(names->text), " and %u more", total - named);
	return names->text;
}

static void judge_waiting(json_t *problems, const json_t *job, double late_s)
{
	const json_t *waiting = json_object_get(job, "waiting"), *rank;
	uint32_t missing = report_whole(waiting, "missing");
	double waited_s = report_number(waiting, "waited_s");
	struct names names = {0};
	size_t index;

	if (missing == 0 || waited_s < late_s)
		return;
	json_array_foreach(json_object_get(waiting, "ranks"), index, rank)
	{
		name_add(&names, job, (uint32_t)json_integer_value(rank));
	}
	problem_add(problems, "straggler", job, "others have waited %s for rank %s, which %s",
	            text_age(waited_s, CELL), names_end(&names, missing),
	            text_is(waiting, "for", "data") ? "sent no data"
	                                            : "did not call the operation");
}

/*
 * A job that does not run waits for workers to join, or for their UDP datagrams. Or its membership has ended, and the
 * next one waits until all living members have asked to continue.
 */
static void judge_state(json_t *problems, const json_t *job, double late_s)
{
	double state_s = report_number(job, "state_s");
	bool forming = text_is(job, "state", "forming"), ending = text_is(job, "state", "ending");
	struct names names = {0};
	size_t index;
	json_t *worker;

	if (text_is(job, "state", "running") || state_s < late_s)
		return;
	json_array_foreach(json_object_get(job, "workers"), index, worker)
	{
		if (forming  ? text_is(worker, "state", "missing")
		    : ending ? text_is(worker, "state", "awaited")
		             : !text_is(worker, "state", "ready") &&
		                       !text_is(worker, "state", "elsewhere"))
			name_add(&names, job, report_whole(worker, "rank"));
	}
	if (!ending && names.count == 0) /* at a site, whose own workers have all come */
		problem_add(problems, "joining", job,
		            "%.11s for %s: its parent waits for other workers",
		            report_text(job, "state"), text_age(state_s, CELL));
	else if (!ending)
		problem_add(problems, "joining", job, "%.11s for %s: %s rank %s",
		            report_text(job, "state"), text_age(state_s, CELL),
		            forming ? "waits for" : "no UDP answer from",
		            names_end(&names, names.count));
	else if (names.count > 0)
		problem_add(problems, "ending", job,
		            "its membership ended %s ago; it waits for rank %s to continue",
		            text_age(state_s, CELL), names_end(&names, names.count));
}

static void judge_silence(json_t *problems, const json_t *job)
{
	double limit_s = report_number(job, "silence_limit_s"), worst_s = 0;
	struct names names = {0};
	json_t *worker;
	size_t index;

	json_array_foreach(json_object_get(job, "workers"), index, worker)
	{
		double silent_s = report_number(worker, "silent_s");

		if (silent_s < limit_s / 2)
			continue;
		name_add(&names, job, report_whole(worker, "rank"));
		worst_s = silent_s > worst_s ? silent_s : worst_s;
	}
	if (limit_s > 0 && names.count > 0)
		problem_add(problems, "silent", job,
		            "nothing was heard for %s from rank %s, which counts as lost after %s",
		            text_age(worst_s, CELL), names_end(&names, names.count),
		            text_age(limit_s, CELL));
}

void report_judge(const json_t *report, double late_s, json_t *problems)
{
	size_t index;
	json_t *job;

	if (json_is_true(json_object_get(report, "draining")))
		problem_add(problems, "draining", NULL, "it is draining and takes no new jobs");
	json_array_foreach(json_object_get(report, "jobs"), index, job)
	{
		judge_state(problems, job, late_s);
		judge_waiting(problems, job, late_s);
		judge_silence(problems, job);
		if (*report_text(job, "trouble") != '\0')
			problem_add(problems, "path", job, "%s", report_text(job, "trouble"));
	}
}
