// SPDX-License-Identifier: BSD-3-Clause
/* trace_live.c - winnow trace: ask this machine's communicators to record their operations, or to stop */

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aggregator/control/options.h"
#include "aggregator/net/clock.h"
#include "client/cli/cli.h"
#include "client/cli/table.h"
#include "client/trace/trace_ask.h"

#define ASKED_MAX 512

static struct {
	const char *operands[2];
	uint32_t operand_count;
	const char *job;
	uint64_t pid, limit, block, timeout_us;
} settings;

static const struct option list[] = {
	{"job", "NAME", OPTION_TEXT, &settings.job, NULL, NULL, 0, 0, "only workers of this job"},
	{"pid", "PID", OPTION_COUNT, &settings.pid, "0", NULL, 0, INT32_MAX,
         "only workers of this process; 0: of all"},
	{"limit", "SIZE", OPTION_SIZE, &settings.limit, "64M", "WINNOW_TRACE_LIMIT", 1, 1e18,
         "a file ends there"},
	{"block", "ELEMENTS", OPTION_COUNT, &settings.block, "4", "=WINNOW_TRACE_BLOCK", 1,
         TRACE_FINE_MAX, "elements a bit stands for"},
	{"timeout", "TIME", OPTION_TIME, &settings.timeout_us, "3s", OPTION_ARGUMENT, 1000, 6e8,
         "how long to wait for answers"},
	{0},
};

static const struct options options = {
	.program = "winnow trace",
	.usage = "[start FOLDER | stop] [...]",
	.about = "Asks the workers of running jobs on this machine to record which parts of their "
		 "tensors are\nnon-zero, for winnow tune, as WINNOW_TRACE=FOLDER does from a job's "
		 "start. Without start or stop:\nshows the workers. One's own only, and as root "
		 "everybody's. A job on several machines: on each.",
	.examples = "  winnow trace\n"
		    "  winnow trace start /tmp/t --job train1; sleep 60; winnow trace stop\n"
		    "  winnow tune /tmp/t\n",
	.list = list,
	.section = "trace",
	.operands = settings.operands,
	.operand_count = &settings.operand_count,
	.operand_max = 2,
};

/* One communicator that may be there, and what it has answered. */
struct asked {
	uint32_t pid;
	int fd;        /* connected to it; -1: it no longer exists */
	bool answered; /* the last question */
	struct trace_answer answer;
};

static struct asked asked[ASKED_MAX];
static uint32_t asked_count;
static uint32_t others; /* sockets of other users' processes, which do not answer us */

/* ---- who is there ---- */

/* A socket of its own for each: an answer in it is that worker's. */
static bool worker_find(uint32_t pid, uint32_t number, struct asked *out)
{
	const struct sockaddr_un own = {.sun_family = AF_UNIX}; /* the kernel chooses a name */
	struct sockaddr_un address;
	socklen_t bytes = trace_ask_address(pid, number, &address);

	*out = (struct asked){.pid = pid, .fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
	if (out->fd < 0 ||
	    bind(out->fd, (const struct sockaddr *)&own, sizeof(own.sun_family)) != 0)
		return false;
	/* Where this fails, so does sending: it no longer exists. */
	(void)connect(out->fd, (const struct sockaddr *)&address, bytes);
	return true;
}

/* A process that is not known here may be of another namespace, and ours. */
static bool is_anothers(unsigned pid)
{
	struct stat about;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%u", pid);
	return geteuid() != 0 && stat(path, &about) == 0 && about.st_uid != geteuid();
}

/* The abstract sockets of this network namespace: the last word of each line. */
static int sockets_find(void)
{
	FILE *file = fopen("/proc/net/unix", "re");
	char line[512];
	int status = 0;

	if (file == NULL)
		return cli_error(1, "cannot read /proc/net/unix: %s", strerror(errno));
	while (status == 0 && fgets(line, sizeof(line), file) != NULL && asked_count < ASKED_MAX) {
		const char *name = strstr(line, " @" TRACE_ASK_PREFIX);
		unsigned pid, number;

		if (name == NULL ||
		    sscanf(name, " @" TRACE_ASK_PREFIX "%u.%u", &pid, &number) != 2 || pid == 0 ||
		    (settings.pid != 0 && pid != settings.pid))
			continue;
		if (is_anothers(pid)) {
			others++;
			continue;
		}
		if (!worker_find(pid, number, &asked[asked_count++]))
			status = cli_error(1, "cannot make a socket: %s", strerror(errno));
	}
	fclose(file);
	return status;
}

/* ---- asking ---- */

static bool wanted(const struct asked *one)
{
	return one->answered &&
	       (settings.job == NULL || strcmp(one->answer.job, settings.job) == 0);
}

/* All workers that are wanted so far, or all, and waits for their answers. */
static void ask(const struct trace_request *request, bool all)
{
	uint64_t end_us = clock_us() + settings.timeout_us;
	char text[TRACE_ASK_BYTES];
	size_t bytes = trace_request_put(request, text);
	bool waits[ASKED_MAX];

	for (uint32_t i = 0; i < asked_count; i++) {
		struct asked *one = &asked[i];

		waits[i] = all || wanted(one);
		if (waits[i])
			one->answered = false;
		/* One that is stopped reads nothing, so that its queue may be full. */
		if (waits[i] && send(one->fd, text, bytes, MSG_DONTWAIT) < 0 && errno != EAGAIN) {
			close(one->fd);
			one->fd = -1;
		}
	}
	for (uint32_t i = 0; i < asked_count; i++) {
		struct asked *one = &asked[i];
		ssize_t count;

		if (!waits[i] || one->fd < 0)
			continue;
		count = cli_receive(one->fd, text, sizeof(text), end_us);
		one->answered = count > 0 && trace_answer_take(text, (size_t)count, &one->answer);
	}
}

/* ---- what is wanted ---- */

static int request_make(struct trace_request *request)
{
	const char *order = settings.operand_count > 0 ? settings.operands[0] : "show";
	const char *folder = settings.operand_count > 1 ? settings.operands[1] : NULL;
	char here[PATH_MAX] = "", text[TRACE_ASK_BYTES];

	*request = (struct trace_request){.order = TRACE_SHOW,
	                                  .limit_bytes = settings.limit,
	                                  .fine = (uint32_t)settings.block};
	if (strcmp(order, "start") == 0)
		request->order = TRACE_START;
	else if (strcmp(order, "stop") == 0)
		request->order = TRACE_STOP;
	else if (settings.operand_count > 0)
		return cli_error(2, "say start FOLDER, or stop, or nothing; not %s", order);
	if (request->order == TRACE_START && folder == NULL)
		return cli_error(2, "start needs a folder: winnow trace start FOLDER");
	if (request->order != TRACE_START && folder != NULL)
		return cli_error(2, "only start takes a folder: %s", folder);
	if (folder == NULL)
		return 0;
	if (folder[0] != '/' && getcwd(here, sizeof(here)) == NULL)
		return cli_error(1, "cannot find the current folder: %s", strerror(errno));
	if ((size_t)snprintf(request->folder, sizeof(request->folder), "%s%s%s", here,
	                     folder[0] != '/' ? "/" : "", folder) >= sizeof(request->folder) - 200)
		return cli_error(2, "the folder's name is too long");
	return trace_request_put(request, text) > 0
	               ? 0
	               : cli_error(2, "the folder's name is not UTF-8: %s", folder);
}

static int by_rank(const void *a, const void *b)
{
	const struct asked *x = a, *y = b;
	int job = strcmp(x->answer.job, y->answer.job);

	if (job != 0)
		return job;
	return x->answer.rank != y->answer.rank ? (x->answer.rank < y->answer.rank ? -1 : 1)
	                                        : (int)x->pid - (int)y->pid;
}

static void show(void)
{
	struct table table = {0};
	char path[TRACE_PATH_BYTES];

	table_columns(&table, "<JOB\tRANK\tOF\tPID\tOPERATIONS");
	for (uint32_t i = 0; i < asked_count; i++) {
		const struct trace_answer *answer = &asked[i].answer;

		if (!wanted(&asked[i]))
			continue;
		snprintf(path, sizeof(path), answer->path[0] != '\0' ? "%llu" : "-",
		         (unsigned long long)answer->operations);
		table_row(&table, "%s\t%u\t%u\t%u\t%s", answer->job, answer->rank, answer->world,
		          asked[i].pid, path);
	}
	if (table.row_count > 0)
		table_print(&table, true, 0, stdout);
	table_clear(&table);
	for (uint32_t i = 0; i < asked_count; i++) {
		if (!wanted(&asked[i]) || asked[i].answer.path[0] == '\0')
			continue;
		text_safe(path, sizeof(path), asked[i].answer.path);
		printf("rank %u of job %s writes %s\n", asked[i].answer.rank, asked[i].answer.job,
		       path);
	}
}

/* Prints what failed, one line each; returns the exit status. */
static int judge(void)
{
	char text[TRACE_PATH_BYTES + 128];
	uint32_t count = 0;
	int status = 0;

	for (uint32_t i = 0; i < asked_count; i++) {
		const struct trace_answer *answer = &asked[i].answer;

		/* A child of a process that has ended keeps the sockets that it inherited. */
		if (!asked[i].answered && asked[i].fd >= 0 &&
		    (kill((pid_t)asked[i].pid, 0) == 0 || errno != ESRCH)) {
			cli_error(1, "process %u does not answer: is it stopped?", asked[i].pid);
			status = 1;
		}
		if (!wanted(&asked[i]))
			continue;
		count++;
		if (answer->error[0] == '\0')
			continue;
		text_safe(text, sizeof(text), answer->error);
		cli_error(1, "rank %u of job %s, process %u: %s", answer->rank, answer->job,
		          asked[i].pid, text);
		status = 1;
	}
	if (count == 0 && others > 0)
		return cli_error(
			1,
			"no such worker of yours is on this machine, and %u of other users: "
			"ask as that user, or as root",
			others);
	if (count == 0 && settings.job != NULL)
		return cli_error(1, "no worker of this job is on this machine: %s", settings.job);
	if (count == 0)
		return cli_error(1, "no worker of a running job is on this machine, or in this "
		                    "network namespace");
	return status;
}

int cli_trace(int argc, char **argv)
{
	struct trace_request request, look = {.order = TRACE_SHOW};
	int status = options_read(&options, argc, argv);

	if (status != 0)
		return status == 1 ? 0 : status;
	status = request_make(&request);
	if (status == 0)
		status = sockets_find();
	if (status != 0)
		return status;
	/* First which jobs they belong to, so that nothing starts that the user did not mean. */
	ask(&look, true);
	if (request.order != TRACE_SHOW)
		ask(&request, false);
	qsort(asked, asked_count, sizeof(*asked), by_rank);
	status = judge();
	if (request.order != TRACE_STOP)
		show();
	return cli_flush(1) != 0 ? 1 : status;
}
