// SPDX-License-Identifier: BSD-3-Clause
/* status_show.c - the answers of aggregators as tables and lines; winnow status and top alike */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/status/owner.h"
#include "client/cli/status/status.h"

#define WAIT_SHOWN_S 0.1 /* shorter waits are normal */

/* ---- differences ---- */

static const struct report_job *job_before(const struct status_target *target,
                                           const struct report_job *job)
{
	const struct report *earlier = target->earlier;

	for (uint32_t i = 0; earlier != NULL && i < earlier->job_count; i++)
		if (strcmp(earlier->jobs[i].name, job->name) == 0)
			return &earlier->jobs[i];
	return NULL;
}

/* Seconds between the two answers, by winnowd's own clock; 0: another winnowd has answered. */
static double seconds_between(const struct status_target *target)
{
	double seconds = 0;

	if (target->earlier != NULL && target->report != NULL)
		seconds = target->report->uptime_s - target->earlier->uptime_s;
	return seconds > 0 ? seconds : 0;
}

/* A counter that went back belongs to another job of the same name. */
static void cell_rate(struct table *table, double now, double before, double seconds)
{
	double rate = seconds > 0 ? (now - before) / seconds : 0;
	char text[16];

	if (!(seconds > 0) || before < 0 || now < before)
		table_cell(table, "-");
	else if (rate > 0 && rate < 9.95)
		table_cell(table, "%.1f", rate); /* large operations are few a second */
	else
		table_cell(table, "%s", text_si(rate, text));
}

/* ---- the table of jobs ---- */

static void jobs_columns(struct table *table, bool several, bool rates)
{
	if (several)
		table_column(table, "AGGREGATOR", true);
	table_column(table, "JOB", true);
	table_column(table, "STATE", true);
	table_column(table, "WORKERS", false);
	table_column(table, rates ? "OPS/S" : "OPS", false);
	table_column(table, rates ? "IN B/S" : "IN B", false);
	table_column(table, rates ? "OUT B/S" : "OUT B", false);
	table_column(table, rates ? "PKTS/S" : "PKTS", false);
	table_column(table, "WAITS", true);
	table_column(table, "SLOTS", false);
	table_column(table, "D", false);
	table_column(table, "U", false);
	table_column(table, "LOSS", false);
	table_column(table, "PATH", true);
	table_column(table, "OPERATION", true);
}

static void cell_share(struct table *table, double share)
{
	if (share < 0 || share > 1)
		table_cell(table, "-");
	else
		table_cell(table, "%.3f", share);
}

/* "6.2s for 1,3+4": the workers that the others wait for. */
static void cell_waits(struct table *table, const struct report_job *job)
{
	char text[TABLE_CELL_BYTES], age[16];
	size_t used;

	if (job->missing == 0 || job->waited_s < WAIT_SHOWN_S) {
		table_cell(table, "-");
		return;
	}
	used = (size_t)snprintf(text, sizeof(text), "%s for ", text_age(job->waited_s, age));
	for (uint32_t i = 0; i < job->rank_count && i < 3; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%u", i > 0 ? "," : "",
		                         job->ranks[i]);
	if (job->missing > 3)
		snprintf(text + used, sizeof(text) - used, "+%u", job->missing - 3);
	table_cell(table, "%s", text);
}

static void cell_operation(struct table *table, const struct report_job *job)
{
	char count[16], more[16] = "";

	if (job->under_way == 0) {
		table_cell(table, "-");
		return;
	}
	if (job->under_way > 1)
		snprintf(more, sizeof(more), " +%u", job->under_way - 1);
	table_cell(table, "%s %s %s%s%s", job->op, job->dtype, text_si(job->count, count),
	           strcmp(job->wire, "fixed32") == 0 ? " fixed32" : "", more);
}

/* Of the results, as many as had to be sent again to some worker. */
static void cell_loss(struct table *table, const struct report_job *job)
{
	double copies = job->results * job->world;

	if (copies > 0)
		table_cell(table, "%.2f%%", 100 * job->result_resends / copies);
	else
		table_cell(table, "-");
}

static void cells_traffic(struct table *table, const struct report_job *job,
                          const struct report_job *before, double seconds, bool rates)
{
	double now[] = {job->operations, job->received_bytes, job->sent_bytes,
	                job->received_packets + job->sent_packets};
	double then[] = {-1, -1, -1, -1};
	char text[16];

	if (before != NULL) {
		then[0] = before->operations;
		then[1] = before->received_bytes;
		then[2] = before->sent_bytes;
		then[3] = before->received_packets + before->sent_packets;
	}
	for (size_t i = 0; i < sizeof(now) / sizeof(now[0]); i++) {
		if (rates)
			cell_rate(table, now[i], then[i], seconds);
		else
			table_cell(table, "%s", text_si(now[i], text));
	}
}

static void job_row(struct table *table, const struct status_target *target,
                    const struct report_job *job, bool several, bool rates)
{
	const char *path = job->fast ? "xdp" : target->report->datapath;

	if (several)
		table_cell(table, "%s", target->address);
	table_cell(table, "%s", job->name);
	table_cell(table, "%s", job->state);
	table_cell(table, "%u/%u", job->members, job->world);
	cells_traffic(table, job, job_before(target, job), seconds_between(target), rates);
	cell_waits(table, job);
	table_cell(table, "%u/%u", job->slots_used, job->slots);
	cell_share(table, job->density);
	cell_share(table, job->united);
	cell_loss(table, job);
	/* A winnowd with XDP serves jobs that XDP cannot serve through sockets. */
	if (!job->fast && strcmp(path, "xdp") == 0)
		path = "udp";
	table_cell(table, "%s%s", path, job->multicast ? "+mcast" : "");
	cell_operation(table, job);
}

void status_jobs_table(const struct status_targets *targets, bool rates, struct table *out)
{
	bool several = targets->count > 1;

	jobs_columns(out, several, rates);
	for (uint32_t i = 0; i < targets->count; i++) {
		const struct status_target *target = &targets->list[i];

		for (uint32_t k = 0; target->report != NULL && k < target->report->job_count; k++)
			job_row(out, target, &target->report->jobs[k], several, rates);
	}
}

/* ---- the table of workers ---- */

static void worker_row(struct table *table, const struct status_target *target,
                       const struct report_job *job, const struct report_worker *worker,
                       bool several)
{
	bool ready = strcmp(worker->state, "ready") == 0, here = *worker->address != '\0';
	char age[16];

	if (several)
		table_cell(table, "%s", target->address);
	table_cell(table, "%s", job->name);
	table_cell(table, "%u", worker->rank);
	table_cell(table, "%s", worker->state);
	table_cell(table, "%s", here ? worker->host : "-");
	table_cell(table, "%s", here ? worker->address : "-");
	table_cell(table, "%s", !ready ? "-" : worker->multicast ? "multicast" : "unicast");
	table_cell(table, "%s", here ? text_age(worker->silent_s, age) : "-");
}

static void show_workers(const struct status_targets *targets, uint32_t width, FILE *out)
{
	struct table table = {0};
	bool several = targets->count > 1;

	if (several)
		table_column(&table, "AGGREGATOR", true);
	table_column(&table, "JOB", true);
	table_column(&table, "RANK", false);
	table_column(&table, "STATE", true);
	table_column(&table, "HOST", true);
	table_column(&table, "ADDRESS", true);
	table_column(&table, "RESULTS BY", true);
	table_column(&table, "SILENT", false);
	for (uint32_t i = 0; i < targets->count; i++) {
		const struct status_target *target = &targets->list[i];
		uint32_t job_count = target->report != NULL ? target->report->job_count : 0;

		for (uint32_t k = 0; k < job_count; k++)
			for (uint32_t w = 0; w < target->report->jobs[k].worker_count; w++)
				worker_row(&table, target, &target->report->jobs[k],
				           &target->report->jobs[k].workers[w], several);
	}
	fprintf(out, "\n");
	table_print(&table, true, width, out);
	table_clear(&table);
}

/* ---- lines ---- */

static void line(FILE *out, uint32_t width, const char *text)
{
	fprintf(out, "%.*s\n", width != 0 ? (int)width : REPORT_TEXT_BYTES * 2, text);
}

static void show_head(const struct status_target *target, uint32_t width, FILE *out)
{
	const struct report *report = target->report;
	char text[1024], age[16], memory[16], limit[16];

	if (report == NULL) {
		snprintf(text, sizeof(text), "%s: unreachable: %s", target->address,
		         target->why.text);
	} else {
		snprintf(text, sizeof(text),
		         "%s: %s; winnowd %s, up %s, %s, %s, %u thread%s, %u job%s, %sB of %sB for "
		         "slots",
		         target->address, status_health_name(target->health), report->version,
		         text_age(report->uptime_s, age), report->datapath, report->isa,
		         report->threads, report->threads == 1 ? "" : "s", report->job_count,
		         report->job_count == 1 ? "" : "s", text_si(report->memory_bytes, memory),
		         text_si(report->memory_limit_bytes, limit));
	}
	line(out, width, text);
}

static void list_counts(char *text, size_t room, const struct report_drop counts[], uint32_t count)
{
	size_t used = 0;
	char number[16];

	*text = '\0';
	for (uint32_t i = 0; i < count && used < room; i++)
		used += (size_t)snprintf(text + used, room - used, "%s%s %s", i > 0 ? ", " : "",
		                         counts[i].reason, text_si(counts[i].count, number));
}

static void show_problems(const struct status_target *target, uint32_t width, FILE *out)
{
	char text[1024];

	for (uint32_t i = 0; i < target->problem_count; i++) {
		const struct report_problem *problem = &target->problems[i];

		snprintf(text, sizeof(text), "  ! %s%s%s%s", *problem->job != '\0' ? "job " : "",
		         problem->job, *problem->job != '\0' ? ": " : "", problem->text);
		line(out, width, text);
	}
}

static void show_notes(const struct status_target *target, uint32_t width, FILE *out)
{
	const struct report *report = target->report;
	char text[1600], counts[1024], age[16], name[OWNER_NAME_BYTES];

	if (target->owner >= 0 && target->owner != (int64_t)geteuid()) {
		owner_name(target->owner, name);
		snprintf(text, sizeof(text),
		         "  it is user %s's, not yours: winnow status HOST:PORT looks at another",
		         name);
		line(out, width, text);
	}
	if (report->drop_count > 0) {
		list_counts(counts, sizeof(counts), report->drops, report->drop_count);
		snprintf(text, sizeof(text), "  dropped: %s", counts);
		line(out, width, text);
	}
	if (strcmp(report->datapath, "xdp") == 0) {
		list_counts(counts, sizeof(counts), report->fast, report->fast_count);
		snprintf(text, sizeof(text), "  xdp %s: %s", report->xdp,
		         report->fast_count > 0 ? counts : "no packets yet");
		line(out, width, text);
	}
	if (report->unsent + report->send_errors > 0) {
		snprintf(text, sizeof(text),
		         "  not sent: %.0f datagrams that the system refused, %.0f given up "
		         "because the network stayed full",
		         report->send_errors, report->unsent);
		line(out, width, text);
	}
	if (report->log_lines_lost > 0) {
		snprintf(text, sizeof(text),
		         "  log: %.0f lines are lost: what reads winnowd's stderr is too slow, or "
		         "gone",
		         report->log_lines_lost);
		line(out, width, text);
	}
	if (*report->failure.text != '\0') {
		snprintf(text, sizeof(text), "  last failure, %s ago: job %s: %s",
		         text_age(report->failure.age_s, age), report->failure.job,
		         report->failure.text);
		line(out, width, text);
	}
}

void status_show(const struct status_targets *targets, const struct status_view *view, FILE *out)
{
	struct table jobs = {0};

	for (uint32_t i = 0; i < targets->count; i++) {
		const struct status_target *target = &targets->list[i];

		if (view->brief && target->health == STATUS_HEALTHY)
			continue;
		show_head(target, view->width, out);
		show_problems(target, view->width, out);
		if (target->report != NULL && !view->brief)
			show_notes(target, view->width, out);
	}
	if (view->brief)
		return;
	if (view->widths != NULL)
		memcpy(jobs.widths, view->widths, sizeof(jobs.widths));
	status_jobs_table(targets, view->rates, &jobs);
	if (jobs.row_count > 0) {
		fprintf(out, "\n");
		table_print(&jobs, true, view->width, out);
	}
	if (view->widths != NULL)
		memcpy(view->widths, jobs.widths, sizeof(jobs.widths));
	table_clear(&jobs);
	if (view->workers)
		show_workers(targets, view->width, out);
}
