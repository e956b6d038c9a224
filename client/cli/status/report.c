// SPDX-License-Identifier: BSD-3-Clause
/* report.c - see report.h; report_judge.c says whether it is well */

#include "client/cli/status/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/table.h"

/* ---- fields ---- */

static double number(const json_t *object, const char *name)
{
	double value = json_number_value(json_object_get(object, name));

	return value > 0 ? value : 0;
}

static uint32_t whole(const json_t *object, const char *name)
{
	double value = number(object, name);

	return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

static bool flag(const json_t *object, const char *name)
{
	return json_is_true(json_object_get(object, name));
}

static double share(const json_t *object, const char *name)
{
	return json_is_number(json_object_get(object, name)) ? number(object, name) : -1;
}

static void text(char *to, size_t room, const json_t *object, const char *name)
{
	const char *value = json_string_value(json_object_get(object, name));

	text_safe(to, room, value != NULL ? value : "");
}

#define TEXT(field, object, name) text(field, sizeof(field), object, name)

/* ---- parts ---- */

static uint32_t drops_read(const json_t *object, struct report_drop drops[REPORT_DROPS_MAX])
{
	uint32_t count = 0;
	const char *name;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)object, name, value)
	{
		if (count == REPORT_DROPS_MAX || !(json_number_value(value) > 0))
			continue;
		text_safe(drops[count].reason, sizeof(drops[count].reason), name);
		drops[count++].count = json_number_value(value);
	}
	return count;
}

static int workers_read(const json_t *list, struct report_job *job)
{
	size_t count = json_array_size(list);

	if (count > REPORT_WORKERS_MAX)
		count = REPORT_WORKERS_MAX;
	job->workers = calloc(count + 1, sizeof(*job->workers));
	if (job->workers == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		const json_t *from = json_array_get(list, i);
		struct report_worker *worker = &job->workers[i];

		worker->rank = whole(from, "rank");
		worker->multicast = flag(from, "multicast");
		worker->silent_s = number(from, "silent_s");
		TEXT(worker->state, from, "state");
		TEXT(worker->host, from, "host");
		TEXT(worker->address, from, "address");
	}
	job->worker_count = (uint32_t)count;
	return 0;
}

static void activity_read(const json_t *from, struct report_job *job)
{
	const json_t *operation = json_object_get(from, "operation");
	const json_t *waiting = json_object_get(from, "waiting");
	const json_t *slots = json_object_get(from, "slots");
	const json_t *ranks = json_object_get(waiting, "ranks");
	char reason[8];

	job->under_way = whole(from, "under_way");
	TEXT(job->dtype, operation, "dtype");
	TEXT(job->op, operation, "op");
	TEXT(job->wire, operation, "wire");
	job->count = number(operation, "count");
	job->age_s = number(operation, "age_s");
	job->missing = whole(waiting, "missing");
	job->waited_s = number(waiting, "waited_s");
	TEXT(reason, waiting, "for");
	job->for_data = strcmp(reason, "data") == 0;
	for (size_t i = 0; i < json_array_size(ranks) && i < REPORT_RANKS_MAX; i++)
		job->ranks[job->rank_count++] =
			(uint32_t)json_integer_value(json_array_get(ranks, i));
	job->slots = whole(slots, "total");
	job->slots_used = whole(slots, "used");
}

static int job_read(const json_t *from, struct report_job *job)
{
	TEXT(job->name, from, "name");
	TEXT(job->state, from, "state");
	job->state_s = number(from, "state_s");
	job->silence_limit_s = number(from, "silence_limit_s");
	job->stall_limit_s = number(from, "stall_limit_s");
	job->world = whole(from, "world");
	job->members = whole(from, "members");
	job->multicast = flag(from, "multicast");
	job->fast = flag(from, "fast");
	job->density = share(from, "density");
	job->united = share(from, "union");
	job->operations = number(from, "operations");
	job->results = number(from, "results");
	job->result_resends = number(from, "result_resends");
	job->received_packets = number(from, "received_packets");
	job->received_bytes = number(from, "received_bytes");
	job->sent_packets = number(from, "sent_packets");
	job->sent_bytes = number(from, "sent_bytes");
	TEXT(job->trouble, from, "trouble");
	activity_read(from, job);
	return workers_read(json_object_get(from, "workers"), job);
}

static int jobs_read(const json_t *list, struct report *report)
{
	size_t count = json_array_size(list);
	int err = 0;

	if (count > REPORT_JOBS_MAX)
		count = REPORT_JOBS_MAX;
	report->jobs = calloc(count + 1, sizeof(*report->jobs));
	if (report->jobs == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < count && err == 0; i++) {
		err = job_read(json_array_get(list, i), &report->jobs[i]);
		report->job_count++;
	}
	return err;
}

static void totals_read(const json_t *root, struct report *report)
{
	const json_t *packets = json_object_get(root, "packets");
	const json_t *failure = json_object_get(root, "last_failure");

	TEXT(report->version, root, "version");
	TEXT(report->datapath, root, "datapath");
	TEXT(report->isa, root, "isa");
	TEXT(report->xdp, root, "xdp");
	report->threads = whole(root, "threads");
	report->uptime_s = number(root, "uptime_s");
	report->memory_bytes = number(root, "memory_reserved_bytes");
	report->memory_limit_bytes = number(root, "memory_limit_bytes");
	report->rcvbuf_bytes = number(root, "rcvbuf_bytes");
	report->draining = flag(root, "draining");
	report->jobs_started = number(root, "jobs_started");
	report->jobs_finished = number(root, "jobs_finished");
	report->jobs_failed = number(root, "jobs_failed");
	report->joins_refused = number(root, "joins_refused");
	report->log_lines_lost = number(root, "log_lines_lost");
	report->received = number(packets, "received");
	report->received_bytes = number(packets, "received_bytes");
	report->sent = number(packets, "sent");
	report->sent_bytes = number(packets, "sent_bytes");
	report->unsent = number(packets, "unsent");
	report->send_errors = number(packets, "send_errors");
	TEXT(report->failure.job, failure, "job");
	TEXT(report->failure.text, failure, "text");
	report->failure.age_s = number(failure, "age_s");
	report->drop_count = drops_read(json_object_get(root, "drops"), report->drops);
	report->fast_count = drops_read(json_object_get(root, "xdp_packets"), report->fast);
}

int report_parse(const char *body, size_t bytes, struct report **out, struct why *why)
{
	json_error_t error;
	json_t *root = json_loadb(body, bytes, 0, &error);
	struct report *report;

	if (root == NULL)
		return why_set(why, -EINVAL, "what answers is not winnowd: no JSON");
	if (!json_is_string(json_object_get(root, "version")) ||
	    !json_is_array(json_object_get(root, "jobs"))) {
		json_decref(root);
		return why_set(why, -EINVAL, "what answers is not winnowd: no list of jobs");
	}
	report = calloc(1, sizeof(*report));
	if (report != NULL) {
		totals_read(root, report);
		report->json = root;
	}
	if (report == NULL || jobs_read(json_object_get(root, "jobs"), report) != 0) {
		if (report == NULL)
			json_decref(root);
		report_free(report);
		return why_set(why, -ENOMEM, "out of memory");
	}
	*out = report;
	return 0;
}

void report_free(struct report *report)
{
	if (report == NULL)
		return;
	for (uint32_t i = 0; i < report->job_count; i++)
		free(report->jobs[i].workers);
	free(report->jobs);
	json_decref(report->json);
	free(report);
}
