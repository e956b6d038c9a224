// SPDX-License-Identifier: BSD-3-Clause
/* top.c - winnow top: the same as winnow status, live, with rates instead of sums */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "aggregator/control/options.h"
#include "client/cli/cli.h"
#include "client/cli/status/screen.h"
#include "client/cli/status/status.h"

#define WITHIN_US 2000000 /* long enough for a lost SYN to be sent again */
#define HEAD_EVERY 20     /* lines of a plain display */

static struct {
	const char *metrics;
	bool workers, plain;
	uint64_t interval_us, late_us, count;
	const char *operands[STATUS_TARGETS_MAX];
	uint32_t operand_count;
} settings;

static struct status_targets targets;
static struct table jobs; /* whose columns do not dance */

static const struct option list[] = {
	{"metrics", "HOST[:PORT][,..]", OPTION_TEXT, &settings.metrics, METRICS_DEFAULT, NULL, 0, 0,
         "where to look without an argument: winnowd's --metrics"},
	{"interval", "TIME", OPTION_TIME, &settings.interval_us, "1", NULL, 100000, 3600e6,
         "between two looks"},
	{"count", "N", OPTION_COUNT, &settings.count, "0", NULL, 0, 0,
         "end after this many looks; 0: never"},
	{"workers", NULL, OPTION_FLAG, &settings.workers, "0", OPTION_ARGUMENT, 0, 0,
         "also show each worker of each job (on a terminal)"},
	{"late", "TIME", OPTION_TIME, &settings.late_us, "5", NULL, 0, 86400e6,
         "report degraded when workers keep others waiting this long"},
	{"plain", NULL, OPTION_FLAG, &settings.plain, "0", NULL, 0, 0,
         "print line after line, even on a terminal"},
	{0},
};

static const struct options options = {
	.program = "winnow top",
	.usage = "[HOST[:PORT]..] [...]",
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

static uint64_t looks, due_ms;
static bool asking; /* then there is nothing to be drawn */
static uv_timer_t timer;
static int exit_status;

static void end(int status)
{
	exit_status = status;
	uv_stop(uv_default_loop());
}

static void clock_text(char text[16])
{
	time_t now = time(NULL);

	strftime(text, 16, "%H:%M:%S", localtime(&now));
}

/* ---- on a terminal ---- */

static void draw(void)
{
	struct status_view view = {.rates = true, .workers = settings.workers, .jobs = &jobs};
	char *text = NULL, now[16];
	uint32_t height;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	if (out == NULL) {
		end(1);
		return;
	}
	screen_size(&view.width, &height);
	clock_text(now);
	fprintf(out, "winnow top  %s  every %.3gs  q: quit\n\n", now,
	        (double)settings.interval_us / 1e6);
	status_show(&targets, &view, out);
	if (fclose(out) != 0 || !screen_draw(text))
		end(1);
	free(text);
}

static void on_key(int key)
{
	if (key == 'q')
		end(0);
	else if (looks > 0 && !asking)
		draw();
}

/* ---- elsewhere ---- */

/* A line a job behind the time; what is unreachable says so in its line. */
static void print_lines(void)
{
	char now[16];

	clock_text(now);
	status_jobs_table(&targets, true, now, &jobs);
	table_print(&jobs, (looks - 1) % HEAD_EVERY == 0, 0, stdout);
	table_clear(&jobs);
	for (uint32_t i = 0; i < targets.count; i++)
		if (targets.list[i].report == NULL)
			printf("%s  %s: unreachable: %s\n", now, targets.list[i].address,
			       targets.list[i].why.text);
		else if (json_array_size(json_object_get(targets.list[i].report, "jobs")) == 0)
			printf("%s  %s: no jobs\n", now, targets.list[i].address);
	if (fflush(stdout) == 0 && !ferror(stdout))
		return;
	end(errno == EPIPE ? 0 /* the reader has seen enough */
	                   : cli_error(1, "cannot write: %s", strerror(errno)));
}

/* ---- again and again ---- */

static void look(uv_timer_t *unused);

/*
 * After an answer that took long, the next look is a whole interval later: rates over a moment would
 * be noise.
 */
static void looked(enum status_health worst)
{
	uint64_t interval_ms = settings.interval_us / 1000, now;

	asking = false;
	looks++;
	if (settings.plain)
		print_lines();
	else
		draw();
	uv_update_time(uv_default_loop());
	now = uv_now(uv_default_loop());
	due_ms = due_ms + interval_ms > now ? due_ms + interval_ms : now + interval_ms;
	if (looks == settings.count)
		end(exit_status != 0 ? exit_status : worst == STATUS_UNREACHABLE ? 2 : 0);
	else
		uv_timer_start(&timer, look, due_ms - now, 0);
}

static void look(uv_timer_t *unused)
{
	(void)unused;
	asking = true;
	status_ask(uv_default_loop(), &targets, looked);
}

int cli_top(int argc, char **argv)
{
	int err = 0, status = options_read(&options, argc, argv);

	if (status != 0)
		return status == 1 ? 0 : status;
	status = status_targets_read(settings.operands, settings.operand_count, settings.metrics,
	                             &targets);
	if (status != 0)
		return status;
	targets.timeout_us = WITHIN_US;
	targets.late_s = (double)settings.late_us / 1e6;
	settings.plain = settings.plain || !screen_usable();
	signal(SIGPIPE, SIG_IGN);
	if (!cli_can_loop())
		return cli_error(1, "cannot ask: too many open files?");
	if (!settings.plain)
		err = screen_open(uv_default_loop(), on_key);
	if (err != 0)
		return cli_error(1, "cannot use the terminal: %s; try --plain", uv_strerror(err));
	due_ms = uv_now(uv_default_loop());
	uv_timer_init(uv_default_loop(), &timer);
	uv_timer_start(&timer, look, 0, 0);
	uv_run(uv_default_loop(), UV_RUN_DEFAULT);
	if (!settings.plain)
		screen_close();
	if (asking) /* which may take its time, and for which nobody waits */
		_exit(exit_status);
	status_targets_free(&targets);
	return exit_status;
}
