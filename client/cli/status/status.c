// SPDX-License-Identifier: BSD-3-Clause
/* status.c - winnow status: looks at aggregators once or repeatedly; the exit status is their state */

#include "client/cli/status/status.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "bitmap/control/options.h"
#include "client/cli/cli.h"

static struct {
	const char *metrics;
	bool json, workers, quiet, alive;
	uint64_t timeout_us, late_us, watch_us;
	const char *operands[STATUS_TARGETS_MAX];
	uint32_t operand_count;
} settings;

static struct status_targets targets;
static enum status_health worst;

static const struct option list[] = {
	{"metrics", "HOST[:PORT][,..]", OPTION_TEXT, &settings.metrics, METRICS_DEFAULT, NULL, 0, 0,
         "address to ask if no argument is given"},
	{"within", "TIME", OPTION_TIME, &settings.timeout_us, "2", NULL, 10000, 3600e6,
         "how long to wait for answers"},
	{"late", "TIME", OPTION_TIME, &settings.late_us, "5", NULL, 0, 86400e6,
         "report workers that keep others waiting this long"},
	{"alive", NULL, OPTION_FLAG, &settings.alive, "0", NULL, 0, 0,
         "exit with 0 also if degraded, for probes that restart"},

	{"workers", NULL, OPTION_FLAG, &settings.workers, "0", OPTION_ARGUMENT, 0, 0,
         "also show each worker of each job"},
	{"quiet", NULL, OPTION_FLAG, &settings.quiet, "0", NULL, 0, 0,
         "print only aggregators that are not healthy"},
	{"json", NULL, OPTION_FLAG, &settings.json, "0", NULL, 0, 0, "print one JSON object"},
	{"watch", "[TIME]", OPTION_TIME, &settings.watch_us, "0", OPTION_ARGUMENT, 100000, 3600e6,
         "repeat each second, or TIME, until Ctrl-C"},
	{0},
};

static const struct option_group groups[] = {{"output", "workers", false}, {0}};

static const struct options options = {
	.program = "winnow status",
	.usage = "[HOST[:PORT]..] [...]",
	.about = "Asks aggregators at their --metrics address. Shows jobs, losses, and workers "
		 "that others wait for.\n"
		 "Exit status: 0 healthy, 1 degraded, 2 unreachable or wrong usage; the worst of "
		 "several aggregators.",
	.examples = "  winnow status 10.0.0.1:9555 10.0.0.2:9555 --late 30s\n"
		    "  winnow status --alive --quiet        # HEALTHCHECK of a container\n",
	.list = list,
	.groups = groups,
	.section = "status",
	.operands = settings.operands,
	.operand_count = &settings.operand_count,
	.operand_max = STATUS_TARGETS_MAX,
};

static json_t *target_json(const struct status_target *target)
{
	bool owned = target->report != NULL && target->owner >= 0;
	char name[OWNER_NAME_BYTES];

	if (owned)
		owner_name(target->owner, name);
	return json_pack("{s:s, s:s, s:o*, s:o*, s:O, s:O*}", "address", target->address, "status",
	                 status_health_names[target->health], "user",
	                 owned ? json_string(name) : NULL, "why",
	                 target->report == NULL ? json_string(target->why.text) : NULL, "problems",
	                 target->problems, "report", target->report);
}

static void print_json(void)
{
	json_t *aggregators = json_array();
	json_t *root = json_pack("{s:s}", "status", status_health_names[worst]);

	for (uint32_t i = 0; i < targets.count; i++)
		json_array_append_new(aggregators, target_json(&targets.list[i]));
	json_object_set_new(root, "aggregators", aggregators);
	/* ASCII only: no text of a stranger may control the terminal. */
	cli_json_print(root, JSON_INDENT(2) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9));
}

/* Looks once. Returns false if the output cannot be written. */
static bool targets_look(void)
{
	const struct status_view view = {.workers = settings.workers, .brief = settings.quiet};

	worst = status_ask(&targets);
	if (settings.json)
		print_json();
	else
		status_show(&targets, &view, stdout);
	return fflush(stdout) == 0 && !ferror(stdout);
}

/* Waits, then prints the time, on a terminal on an empty screen. */
static void next_begins(void)
{
	const struct timespec pause = {.tv_sec = (time_t)(settings.watch_us / 1000000),
	                               .tv_nsec = (long)(settings.watch_us % 1000000) * 1000};
	char text[32];
	time_t now;

	nanosleep(&pause, NULL);
	now = time(NULL);
	strftime(text, sizeof(text), "%F %T", localtime(&now));
	if (isatty(STDOUT_FILENO))
		printf("\033[H\033[2J");
	if (!settings.json)
		printf("%s%s\n", isatty(STDOUT_FILENO) ? "" : "\n", text);
}

int cli_status(int argc, char **argv)
{
	int status = options_read(&options, argc, argv), err;

	if (status != 0)
		return status == 1 ? 0 : status;
	status = status_targets_read(settings.operands, settings.operand_count, settings.metrics,
	                             &targets);
	if (status != 0)
		return status;
	targets.timeout_us = settings.timeout_us;
	targets.late_s = (double)settings.late_us / 1e6;
	if (settings.watch_us != 0)
		signal(SIGPIPE, SIG_IGN); /* The loop ends when the reader has closed the pipe. */
	while (targets_look() && settings.watch_us != 0)
		next_begins();
	err = errno;
	status_targets_free(&targets);
	if (settings.watch_us != 0 && err == EPIPE)
		return STATUS_HEALTHY;
	if (cli_flush(1) != 0)
		return STATUS_UNREACHABLE;
	return settings.alive && worst == STATUS_DEGRADED ? STATUS_HEALTHY : (int)worst;
}
