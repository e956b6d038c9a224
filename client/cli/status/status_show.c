// SPDX-License-Identifier: BSD-3-Clause
/* status_show.c - prints the answers of aggregators as tables and lines */

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/status/status.h"

#define WAIT_SHOWN_S 0.1 /* Shorter waits are normal and not shown. */
#define HELD_SHOWN 0.01
#define LINE_BYTES 1600

static uint32_t job_count(const json_t *report)
{
	size_t count = json_array_size(json_object_get(report, "jobs"));

	return count < STATUS_JOBS_MAX ? (uint32_t)count : STATUS_JOBS_MAX;
}

static const json_t *job_at(const json_t *report, uint32_t index)
{
	return json_array_get(json_object_get(report, "jobs"), index);
}

static bool report_flag(const json_t *object, const char *name)
{
	return json_is_true(json_object_get(object, name));
}

/* ---- the table of jobs ---- */

static char *share_text(const json_t *job, const char *name, char text[16])
{
	double share = report_number(job, name);

	snprintf(text, 16, json_is_number(json_object_get(job, name)) && share <= 1 ? "%.3f" : "-",
	         share);
	return text;
}

/* Writes the workers that others wait for, such as "6.2s for 1,3+4". */
static char *waits_text(const json_t *waiting, char text[TABLE_CELL_BYTES])
{
	uint32_t missing = report_whole(waiting, "missing");
	double waited_s = report_number(waiting, "waited_s");
	const json_t *ranks = json_object_get(waiting, "ranks");

	strcpy(text, "-");
	if (missing == 0 || waited_s < WAIT_SHOWN_S)
		return text;
	snprintf(text, TABLE_CELL_BYTES, "%s for ", text_age(waited_s, CELL));
	for (size_t i = 0; i < json_array_size(ranks) && i < 3; i++)
		text_add(text, TABLE_CELL_BYTES, "%s%u", i > 0 ? "," : "",
		         (uint32_t)json_integer_value(json_array_get(ranks, i)));
	if (missing > 3)
		text_add(text, TABLE_CELL_BYTES, "+%u", missing - 3);
	return text;
}

static char *operation_text(const json_t *job, char text[TABLE_CELL_BYTES])
{
	const json_t *operation = json_object_get(job, "operation");
	uint32_t under_way = report_whole(job, "under_way");
	const char *wire = report_text(operation, "wire");
	bool native = wire[0] == '\0' || strcmp(wire, "native") == 0;
	char more[16] = "";

	strcpy(text, "-");
	if (under_way == 0)
		return text;
	if (under_way > 1)
		snprintf(more, sizeof(more), " +%u", under_way - 1);
	snprintf(text, TABLE_CELL_BYTES, "%.8s %.8s %s%s%.8s%s", report_text(operation, "op"),
	         report_text(operation, "dtype"), text_si(report_number(operation, "count"), CELL),
	         native ? "" : " ", native ? "" : wire, more);
	return text;
}

/* How many copies of a result go out: one to each worker here, and one to each site. */
static double copies_of(const json_t *job)
{
	json_t *sites = json_object(), *worker;
	size_t i, copies = 0;

	json_array_foreach(json_object_get(job, "workers"), i, worker)
	{
		const char *site = json_string_value(json_object_get(worker, "site"));

		if (site != NULL)
			json_object_set_new(sites, site, json_true());
		else
			copies += strcmp(report_text(worker, "state"), "elsewhere") != 0;
	}
	copies += json_object_size(sites);
	json_decref(sites);
	return (double)copies;
}

/* The share of results that had to be sent again to some worker. */
static char *loss_text(const json_t *job, char text[16])
{
	double copies = report_number(job, "results") * copies_of(job);

	snprintf(text, 16, copies > 0 ? "%.2f%%" : "-",
	         100 * report_number(job, "result_resends") / copies);
	return text;
}

/* Writes a round trip, such as "240us", "3.1ms" or "1.20s". */
static const char *rtt_text(double seconds, char text[16])
{
	if (!(seconds > 0))
		strcpy(text, "-");
	else if (seconds < 0.001)
		snprintf(text, 16, "%.0fus", seconds * 1e6);
	else
		snprintf(text, 16, seconds < 1 ? "%.3gms" : "%.4gs",
		         seconds < 1 ? seconds * 1e3 : seconds);
	return text;
}

/* The share of the time that a worker was held back, by its window or by others' acknowledgements. */
static double held_share(const json_t *worker, const char **by)
{
	const json_t *lately = json_object_get(worker, "lately");
	double window = report_number(lately, "held_window");
	double credit = report_number(lately, "held_credit");

	*by = window >= credit ? "window" : "credit";
	return window >= credit ? window : credit;
}

/*
 * Writes the longest round trip of a job's workers, and what holds them back most, such as "window 63%: 2" or "credit
 * 40%: 3". The number is the worker whose window it is, or whose acknowledgements the others have waited for.
 */
static void path_text(const json_t *job, char rtt[16], char held[TABLE_CELL_BYTES])
{
	const json_t *most = NULL, *last = NULL; /* workers */
	double longest_s = 0, share;
	const char *by;
	json_t *worker;
	size_t i;

	json_array_foreach(json_object_get(job, "workers"), i, worker)
	{
		longest_s = fmax(longest_s, report_number(worker, "rtt_s"));
		if (held_share(worker, &by) > held_share(most, &by))
			most = worker;
		if (report_number(worker, "last_s") > report_number(last, "last_s"))
			last = worker;
	}
	rtt_text(longest_s, rtt);
	share = held_share(most, &by);
	if (share < HELD_SHOWN)
		strcpy(held, "-");
	else
		snprintf(held, TABLE_CELL_BYTES, "%s %.0f%%: %u", by, 100 * fmin(share, 1),
		         report_whole(*by == 'c' ? last : most, "rank"));
}

/* Writes the columns "OPS\tIN B\tOUT B\tPKTS". */
static char *traffic_text(const json_t *job, char text[TABLE_CELL_BYTES])
{
	const double counts[] = {
		report_number(job, "operations"),
		report_number(job, "received_bytes"),
		report_number(job, "sent_bytes"),
		report_number(job, "received_packets") + report_number(job, "sent_packets"),
	};

	*text = '\0';
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		text_add(text, TABLE_CELL_BYTES, "%s%s", i > 0 ? "\t" : "",
		         text_si(counts[i], CELL));
	return text;
}

/* A job's workers, but at a site only those that join there. */
static uint32_t world_here(const json_t *job)
{
	uint32_t here = report_whole(job, "world");
	json_t *worker;
	size_t i;

	json_array_foreach(json_object_get(job, "workers"), i, worker)
	{
		here -= here > 0 && strcmp(report_text(worker, "state"), "elsewhere") == 0;
	}
	return here;
}

/* Adds a row that begins with the cells in `before`. */
static void job_row(struct table *table, const char *before, const json_t *report,
                    const json_t *job)
{
	const json_t *slots = json_object_get(job, "slots");
	const char *path = report_text(report, "datapath");
	char rtt[16], held[TABLE_CELL_BYTES];

	/* A winnowd with XDP uses sockets for jobs that XDP cannot serve. */
	if (strcmp(path, "xdp") == 0)
		path = report_flag(job, "fast") ? "xdp" : "udp";
	path_text(job, rtt, held);
	table_row(table, "%s%.64s\t%.11s\t%u/%u\t%s\t%s\t%u/%u\t%s\t%s\t%s\t%s\t%s\t%.15s%s\t%s",
	          before, report_text(job, "name"), report_text(job, "state"),
	          report_whole(job, "members"), world_here(job), traffic_text(job, CELL),
	          waits_text(json_object_get(job, "waiting"), CELL), report_whole(slots, "used"),
	          report_whole(slots, "total"), share_text(job, "density", CELL),
	          share_text(job, "union", CELL), loss_text(job, CELL), rtt, held, path,
	          report_flag(job, "multicast") ? "+mcast" : "", operation_text(job, CELL));
}

/* ---- the table of workers ---- */

/* Writes shares of the datagrams to and from the aggregator, such as "0.3%/1.2%". */
static char *ways_text(const json_t *lately, const char *what, char text[TABLE_CELL_BYTES])
{
	char out[16], in[16];

	strcpy(text, "-");
	if (!json_is_object(lately))
		return text;
	snprintf(out, sizeof(out), "out_%s", what);
	snprintf(in, sizeof(in), "in_%s", what);
	snprintf(text, TABLE_CELL_BYTES, "%.1f%%/%.1f%%",
	         100 * fmin(report_number(lately, out), 9.99),
	         100 * fmin(report_number(lately, in), 9.99));
	return text;
}

static void worker_row(struct table *table, const char *before, const char *job,
                       const json_t *worker)
{
	const char *address = report_text(worker, "address"), *state = report_text(worker, "state");
	const char *says = report_text(worker, "says"), *site = report_text(worker, "site");
	bool here = *address != '\0';
	const char *by;
	const json_t *lately = json_object_get(worker, "lately");
	char held[32] = "-", window[16] = "-";
	double share = held_share(worker, &by);

	if (report_whole(worker, "window") > 0)
		snprintf(window, sizeof(window), "%u", report_whole(worker, "window"));
	if (share >= HELD_SHOWN)
		snprintf(held, sizeof(held), "%s %.0f%%", by, 100 * fmin(share, 1));
	table_row(table,
	          "%s%.64s\t%u\t%.11s\t%.64s\t%.64s\t%.47s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%."
	          "1fs\t%.63s",
	          before, job, report_whole(worker, "rank"), state,
	          here ? report_text(worker, "host") : "-", *site != '\0' ? site : "-",
	          here ? address : "-",
	          strcmp(state, "ready") != 0        ? "-"
	          : report_flag(worker, "multicast") ? "multicast"
	                                             : "unicast",
	          here ? text_age(report_number(worker, "silent_s"), CELL) : "-",
	          rtt_text(report_number(worker, "rtt_s"), CELL),
	          rtt_text(report_number(worker, "rtt_least_s"), CELL), window,
	          ways_text(lately, "lost", CELL), ways_text(lately, "marked", CELL), held,
	          report_number(worker, "last_s"), *says != '\0' ? says : "-");
}

static void worker_rows(struct table *table, const char *before, const json_t *report,
                        const json_t *job)
{
	json_t *worker;
	size_t i;

	(void)report;
	json_array_foreach(json_object_get(job, "workers"), i, worker)
	{
		worker_row(table, before, report_text(job, "name"), worker);
	}
}

/* Prints a table to which add() adds the rows of each job of each aggregator. */
static void table_show(const struct status_targets *targets, const char *titles,
                       void (*add)(struct table *table, const char *before, const json_t *report,
                                   const json_t *job),
                       FILE *out)
{
	struct table table = {0};
	char before[300] = "";

	if (targets->count > 1)
		table_columns(&table, "<AGGREGATOR");
	table_columns(&table, titles);
	for (uint32_t i = 0; i < targets->count; i++) {
		const struct status_target *target = &targets->list[i];

		if (targets->count > 1)
			snprintf(before, sizeof(before), "%s\t", target->address);
		for (uint32_t k = 0; k < job_count(target->report); k++)
			add(&table, before, target->report, job_at(target->report, k));
	}
	if (table.row_count > 0) {
		fprintf(out, "\n");
		table_print(&table, out);
	}
	table_clear(&table);
}

/* ---- lines ---- */

static void line_print(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void line_print(FILE *out, const char *format, ...)
{
	char text[LINE_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	text_safe(text, sizeof(text), text);
	fprintf(out, "%s\n", text);
}

/* " (slices of 100 us, nice -10)": how soon data threads get a CPU, if not as every other thread does. */
static const char *turn_text(const json_t *report, char *text, size_t room)
{
	uint32_t slice_us = report_whole(report, "slice_us");
	double nice = report_number(report, "nice");

	*text = '\0';
	if (slice_us > 0)
		text_add(text, room, " (slices of %u us, nice %.0f)", slice_us, nice);
	else if (nice != 0)
		text_add(text, room, " (nice %.0f)", nice);
	return text;
}

static void show_head(const struct status_target *target, FILE *out)
{
	const json_t *report = target->report;
	uint32_t threads = report_whole(report, "threads"), jobs = job_count(report);
	const char *site = report_text(report, "site");
	char below[160] = "";

	if (report == NULL) {
		line_print(out, "%s: unreachable: %s", target->address, target->why.text);
		return;
	}
	if (*site != '\0')
		snprintf(below, sizeof(below), ", site %.63s of %.63s", site,
		         report_text(report, "parent"));
	line_print(out,
	           "%s: %s; winnowd %.31s%s, up %s, %.15s, %.15s, %u thread%s%s, %u job%s, "
	           "%sB of %sB for slots",
	           target->address, status_health_names[target->health],
	           report_text(report, "version"), below,
	           text_age(report_number(report, "uptime_s"), CELL),
	           report_text(report, "datapath"), report_text(report, "isa"), threads,
	           threads == 1 ? "" : "s", turn_text(report, CELL, TABLE_CELL_BYTES), jobs,
	           jobs == 1 ? "" : "s",
	           text_si(report_number(report, "memory_reserved_bytes"), CELL),
	           text_si(report_number(report, "memory_limit_bytes"), CELL));
}

/* Writes the counts above 0 that fit, such as "stale 3, short 9". */
static const char *counts_text(const json_t *counts, char *text, size_t room)
{
	const char *name;
	json_t *value;

	*text = '\0';
	json_object_foreach((json_t *)(uintptr_t)counts, name, value)
	{
		if (json_number_value(value) > 0 && strlen(text) + 64 < room)
			text_add(text, room, "%s%.31s %s", *text != '\0' ? ", " : "", name,
			         text_si(json_number_value(value), CELL));
	}
	return text;
}

static void show_notes(const struct status_target *target, FILE *out)
{
	const json_t *report = target->report, *packets = json_object_get(report, "packets");
	const json_t *failure = json_object_get(report, "last_failure");
	double refused = report_number(packets, "send_errors");
	double given_up = report_number(packets, "unsent");
	double lost = report_number(report, "log_lines_lost");
	char counts[1024], name[OWNER_NAME_BYTES];

	if (target->owner >= 0 && target->owner != (int64_t)geteuid()) {
		owner_name(target->owner, name);
		line_print(out,
		           "  it belongs to user %s; to ask another one: winnow status HOST:PORT",
		           name);
	}
	if (*counts_text(json_object_get(report, "drops"), counts, sizeof(counts)) != '\0')
		line_print(out, "  dropped: %s", counts);
	counts_text(json_object_get(report, "xdp_packets"), counts, sizeof(counts));
	if (strcmp(report_text(report, "datapath"), "xdp") == 0)
		line_print(out, "  xdp %.500s: %s", report_text(report, "xdp"),
		           *counts != '\0' ? counts : "no packets yet");
	if (refused + given_up > 0)
		line_print(out,
		           "  not sent: %.0f datagrams refused by the system, %.0f dropped because "
		           "the send queue stayed full",
		           refused, given_up);
	if (lost > 0)
		line_print(out,
		           "  log: %.0f lines are lost because the reader of winnowd's stderr is "
		           "too slow or gone",
		           lost);
	if (*report_text(failure, "text") != '\0')
		line_print(out, "  last failure, %s ago: job %.64s: %s",
		           text_age(report_number(failure, "age_s"), CELL),
		           report_text(failure, "job"), report_text(failure, "text"));
}

void status_show(const struct status_targets *targets, const struct status_view *view, FILE *out)
{
	json_t *problem;
	size_t k;

	for (uint32_t i = 0; i < targets->count; i++) {
		const struct status_target *target = &targets->list[i];

		if (view->brief && target->health == STATUS_HEALTHY)
			continue;
		show_head(target, out);
		json_array_foreach(target->problems, k, problem)
		{
			const char *job = report_text(problem, "job");

			line_print(out, "  ! %s%s%s%s", *job != '\0' ? "job " : "", job,
			           *job != '\0' ? ": " : "", report_text(problem, "text"));
		}
		if (target->report != NULL && !view->brief)
			show_notes(target, out);
	}
	if (view->brief)
		return;
	table_show(targets,
	           "<JOB\t<STATE\tWORKERS\tOPS\tIN B\tOUT B\tPKTS\t<WAITS\tSLOTS\tD\tU\tLOSS\tRTT\t"
	           "<HELD\t<PATH\t<OPERATION",
	           job_row, out);
	if (view->workers)
		table_show(targets,
		           "<JOB\tRANK\t<STATE\t<HOST\t<SITE\t<ADDRESS\t<RESULTS "
		           "BY\tSILENT\tRTT\tLEAST\t"
		           "WINDOW\tLOST\tMARKED\t<HELD\tLAST\t<SAYS",
		           worker_rows, out);
}
