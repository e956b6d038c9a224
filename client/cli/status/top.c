// SPDX-License-Identifier: BSD-3-Clause
/* top.c - winnow top: the same as winnow status, live, with rates instead of sums */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "aggregator/control/options.h"
#include "aggregator/net/clock.h"
#include "client/cli/cli.h"
#include "client/cli/status/screen.h"
#include "client/cli/status/status.h"

#define WITHIN_US 2000000
#define HEAD_EVERY 20 /* lines of a plain display */

static struct {
	const char *metrics;
	bool workers, plain;
	uint64_t interval_us, late_us, count;
	const char *operands[STATUS_TARGETS_MAX];
	uint32_t operand_count;
} settings;

static struct status_targets targets;
static uint32_t widths[TABLE_COLUMNS_MAX]; /* so that columns do not dance */

static const struct option list[] = {
	{"metrics", "HOST:PORT[,..]", OPTION_TEXT, &settings.metrics, METRICS_DEFAULT, NULL, 0, 0,
         "where to look without an argument: winnowd's --metrics"},
	{"interval", "TIME", OPTION_TIME, &settings.interval_us, "1", NULL, 100000, 3600e6,
         "between two looks"},
	{"count", "N", OPTION_COUNT, &settings.count, "0", NULL, 0, 0,
         "end after this many looks; 0: never"},
	{"workers", NULL, OPTION_FLAG, &settings.workers, "0", NULL, 0, 0,
         "also show each worker of each job (on a terminal)"},
	{"late", "TIME", OPTION_TIME, &settings.late_us, "5", NULL, 0, 86400e6,
         "report degraded when workers keep others waiting this long"},
	{"plain", NULL, OPTION_FLAG, &settings.plain, "0", NULL, 0, 0,
         "print line after line, even on a terminal"},
	{0},
};

static const struct options options = {
	.program = "winnow top",
	.usage = "[HOST:PORT..] [...]",
	.about = "Shows jobs of aggregators live: operations, bytes and packets a second. q or ^C "
		 "ends it.\nIf stdout is not a terminal it prints a line for each job, again and "
		 "again.",
	.examples = "  winnow top\n"
		    "  winnow top 10.0.0.1:9555 10.0.0.2:9555 --interval 5\n"
		    "  winnow top --count 60 >minute.txt\n",
	.list = list,
	.section = "top",
	.operands = settings.operands,
	.operand_count = &settings.operand_count,
	.operand_max = STATUS_TARGETS_MAX,
};

/*
 * When to look again. After an answer that took long, a whole interval later: rates over a moment
 * would be noise.
 */
static uint64_t next_look(uint64_t due_us)
{
	uint64_t now = clock_us();

	due_us += settings.interval_us;
	return due_us > now ? due_us : now + settings.interval_us;
}

/* Long enough for a lost SYN to be sent again. */
static void ask(bool (*stop)(void))
{
	(void)status_ask(&targets, WITHIN_US, (double)settings.late_us / 1e6, stop);
}

static bool more(uint64_t looks)
{
	return settings.count == 0 || looks < settings.count;
}

/* ---- on a terminal ---- */

static bool draw(void)
{
	struct status_view view = {.rates = true, .workers = settings.workers, .widths = widths};
	char *text = NULL, clock_text[16];
	time_t now = time(NULL);
	uint32_t height;
	size_t bytes;
	bool drawn;
	FILE *out = open_memstream(&text, &bytes);

	if (out == NULL)
		return false;
	screen_size(&view.width, &height);
	strftime(clock_text, sizeof(clock_text), "%H:%M:%S", localtime(&now));
	fprintf(out, "winnow top  %s  every %.3gs  q: quit\n\n", clock_text,
	        (double)settings.interval_us / 1e6);
	status_show(&targets, &view, out);
	drawn = fclose(out) == 0 && screen_draw(text);
	free(text);
	return drawn;
}

static int run_on_screen(void)
{
	int key = 0, err = screen_open();
	bool drawn = true;

	if (err != 0)
		return cli_error(1, "cannot use the terminal: %s; try --plain", strerror(-err));
	for (uint64_t looks = 0; key != 'q' && drawn && more(looks); looks++) {
		uint64_t next_us = clock_us();

		ask(screen_stop);
		next_us = next_look(next_us);
		key = 'r';
		while (key == 'r' && drawn) {
			uint64_t left_us = clock_us();

			drawn = draw();
			left_us = left_us < next_us && more(looks + 1) ? next_us - left_us : 0;
			key = screen_wait(left_us);
		}
	}
	screen_close();
	return drawn ? 0 : 1;
}

/* ---- elsewhere ---- */

/* A line a job behind the time; what is unreachable says so in its line. */
static void print_lines(bool head)
{
	struct table table = {0}, all = {0};
	time_t now = time(NULL);
	char clock_text[16];

	strftime(clock_text, sizeof(clock_text), "%H:%M:%S", localtime(&now));
	memcpy(table.widths, widths, sizeof(widths));
	status_jobs_table(&targets, true, &table);
	all = table;
	if (head) {
		all.row_count = 0;
		printf("%-8s  ", "TIME");
		table_print(&all, true, 0, stdout);
	}
	for (uint32_t row = 0; row < table.row_count; row++) {
		all.cells = table.cells + (size_t)row * TABLE_COLUMNS_MAX;
		all.row_count = 1;
		all.filled = table.column_count;
		printf("%s  ", clock_text);
		table_print(&all, false, 0, stdout);
	}
	for (uint32_t i = 0; i < targets.count; i++)
		if (targets.list[i].health == STATUS_UNREACHABLE)
			printf("%s  %s: unreachable: %s\n", clock_text, targets.list[i].address,
			       targets.list[i].why.text);
		else if (targets.list[i].report->job_count == 0)
			printf("%s  %s: no jobs\n", clock_text, targets.list[i].address);
	memcpy(widths, table.widths, sizeof(widths));
	table_clear(&table);
}

static int run_plain(void)
{
	uint64_t next_us = clock_us();

	for (uint64_t looks = 0; more(looks); looks++) {
		struct timespec next = clock_timespec(next_us);

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
		ask(NULL);
		next_us = next_look(next_us);
		print_lines(looks % HEAD_EVERY == 0);
		if (fflush(stdout) != 0 || ferror(stdout)) {
			if (errno == EPIPE)
				return 0; /* the reader has seen enough */
			return cli_error(1, "cannot write: %s", strerror(errno));
		}
	}
	return 0;
}

int cli_top(int argc, char **argv)
{
	int status = options_read(&options, argc, argv);

	if (status != 0)
		return status == 1 ? 0 : status;
	status = status_targets_read(settings.operands, settings.operand_count, settings.metrics,
	                             &targets);
	if (status != 0)
		return status;
	signal(SIGPIPE, SIG_IGN);
	status = settings.plain || !screen_usable() ? run_plain() : run_on_screen();
	status_targets_free(&targets);
	return status;
}
