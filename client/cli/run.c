// SPDX-License-Identifier: BSD-3-Clause
/* run.c - winnow run -n N -- COMMAND: a job's workers on this machine, and winnowd if there is none */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "aggregator/control/options.h"
#include "aggregator/net/clock.h"
#include "client/cli/children.h"
#include "client/cli/cli.h"

#define LINE_BYTES 8192  /* longer lines come in pieces */
#define PATIENCE_MS 5000 /* between SIGTERM and SIGKILL */
#define DRAIN_MS 200     /* for the last output of processes that workers have started */

static struct {
	uint64_t workers;
	const char *aggregator;
	bool bare;
} settings;

static const struct option list[] = {
	{"workers", "N", OPTION_COUNT, &settings.workers, "2", NULL, 1, CHILDREN_MAX,
         "how many processes"},
	{"aggregators", "HOST:PORT[,..]", OPTION_TEXT, &settings.aggregator, NULL, NULL, 0, 0,
         "where winnowd listens; without it, winnow run starts one for the job"},
	{"bare", NULL, OPTION_FLAG, &settings.bare, "0", NULL, 0, 0,
         "print lines as they are, without the worker's number in front"},
	{0},
};

static const struct option_letter letters[] = {{'n', "workers"}, {0}};

static const struct options options = {
	.program = "winnow run",
	.usage = "[-n N] [...] -- COMMAND [ARG..]",
	.about = "Starts N processes of COMMAND on this machine with RANK, LOCAL_RANK, GROUP_RANK, "
		 "WORLD_SIZE,\nLOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and WINNOW_AGGREGATORS, "
		 "and OMP_NUM_THREADS if it is not set.\nWhen one fails the others are ended, and "
		 "the exit status is that of the first that failed: 128 and the\nsignal, if it was "
		 "one.",
	.examples = "  winnow run -n 4 -- python3 train.py\n"
		    "  winnow run -n 2 --aggregators 10.0.0.1:5555 -- python3 train.py\n",
	.list = list,
	.letters = letters,
	.section = "run",
};

struct output {
	int fd; /* -1: ended */
	FILE *to;
	uint32_t rank;
	size_t have;
	char line[LINE_BYTES];
};

struct launch {
	struct children children;
	uint32_t count;         /* of workers, all of them */
	struct output *outputs; /* [2 * count] */
	int signals;            /* a signalfd */
	int status;             /* of the first that failed */
	uint64_t kill_ms;       /* when patience ends; UINT64_MAX: nobody has been told to end */
};

/* ---- starting ---- */

static bool start_worker(struct launch *launch, uint32_t rank, char **command)
{
	int pipes[2][2];

	if (pipe2(pipes[0], O_CLOEXEC) != 0 || pipe2(pipes[1], O_CLOEXEC) != 0)
		return false;
	children_environment(1, 0, launch->count, rank);
	if (!children_worker(&launch->children, command,
	                     (const int[]){CHILD_NOTHING, pipes[0][1], pipes[1][1]}))
		return false;
	for (uint32_t i = 0; i < 2; i++) {
		struct output *output = &launch->outputs[2 * rank + i];

		close(pipes[i][1]);
		fcntl(pipes[i][0], F_SETFL, O_NONBLOCK);
		*output = (struct output){
			.fd = pipes[i][0], .to = i == 0 ? stdout : stderr, .rank = rank};
	}
	return true;
}

/* What all workers find in their environment, besides their ranks. */
static bool set_environment(const struct launch *launch)
{
	long threads = sysconf(_SC_NPROCESSORS_ONLN) / (long)launch->count;
	char address[32], text[32];

	if (!children_free_address(address))
		return false;
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	setenv("MASTER_PORT", strchr(address, ':') + 1, 1);
	snprintf(text, sizeof(text), "run-%d", (int)getpid());
	setenv("WINNOW_JOB", text, 0);
	snprintf(text, sizeof(text), "%ld", threads > 1 ? threads : 1);
	setenv("OMP_NUM_THREADS", text, 0);
	return true;
}

/* ---- output ---- */

static void print_line(struct output *output, size_t bytes)
{
	if (!settings.bare)
		fprintf(output->to, "[%u] ", output->rank);
	fwrite(output->line, 1, bytes, output->to);
	putc('\n', output->to);
	fflush(output->to);
}

static void print_lines(struct output *output)
{
	char *end;

	while ((end = memchr(output->line, '\n', output->have)) != NULL) {
		size_t bytes = (size_t)(end - output->line);

		print_line(output, bytes);
		output->have -= bytes + 1;
		memmove(output->line, end + 1, output->have);
	}
	if (output->have == sizeof(output->line)) {
		print_line(output, output->have);
		output->have = 0;
	}
}

static void read_output(struct output *output)
{
	ssize_t got =
		read(output->fd, output->line + output->have, sizeof(output->line) - output->have);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got > 0) {
		output->have += (size_t)got;
		print_lines(output);
		return;
	}
	if (output->have > 0)
		print_line(output, output->have);
	close(output->fd);
	output->fd = -1;
}

/* ---- ending ---- */

static void end_all(struct launch *launch, int status)
{
	if (launch->status == 0)
		launch->status = status;
	if (launch->kill_ms != UINT64_MAX)
		return;
	launch->kill_ms = clock_us() / 1000 + PATIENCE_MS;
	children_signal(&launch->children, SIGTERM);
}

static void reap(struct launch *launch)
{
	uint32_t number;
	int ended;

	while (children_ended(&launch->children, &number, &ended)) {
		int status = child_status(ended);

		if (number == UINT32_MAX) {
			cli_error(1, "winnowd has ended: ending the workers");
			end_all(launch, 1);
		} else if (status != 0 && launch->kill_ms == UINT64_MAX) {
			cli_error(1, "worker %u %s %d: ending the others", number,
			          WIFSIGNALED(ended) ? "was ended by signal"
			                             : "has failed with exit status",
			          WIFSIGNALED(ended) ? WTERMSIG(ended) : status);
			end_all(launch, status);
		}
	}
}

static void take_signal(struct launch *launch)
{
	struct signalfd_siginfo info;

	if (read(launch->signals, &info, sizeof(info)) != sizeof(info))
		return;
	if (info.ssi_signo == SIGCHLD)
		reap(launch);
	else
		end_all(launch, 128 + (int)info.ssi_signo);
}

/* False when nothing happened for `wait_ms`. */
static bool turn(struct launch *launch, int wait_ms)
{
	struct pollfd fds[2 * CHILDREN_MAX + 1];
	uint32_t outputs = 2 * launch->count;

	for (uint32_t i = 0; i < outputs; i++)
		fds[i] = (struct pollfd){.fd = launch->outputs[i].fd, .events = POLLIN};
	fds[outputs] = (struct pollfd){.fd = launch->signals, .events = POLLIN};
	if (poll(fds, outputs + 1, wait_ms) <= 0)
		return false;
	for (uint32_t i = 0; i < outputs; i++)
		if (fds[i].revents != 0)
			read_output(&launch->outputs[i]);
	if (fds[outputs].revents != 0)
		take_signal(launch);
	return true;
}

static void watch(struct launch *launch)
{
	while (launch->children.running > 0) {
		uint64_t now = clock_us() / 1000;

		if (now >= launch->kill_ms) {
			children_signal(&launch->children, SIGKILL);
			launch->kill_ms = UINT64_MAX - 1;
		}
		turn(launch, launch->kill_ms < UINT64_MAX - 1 ? (int)(launch->kill_ms - now) : -1);
	}
	while (turn(launch, DRAIN_MS)) {
		bool open = false;

		for (uint32_t i = 0; i < 2 * launch->count; i++)
			open = open || launch->outputs[i].fd >= 0;
		if (!open)
			break;
	}
	children_winnowd_end(&launch->children);
}

static int run(struct launch *launch, char **command)
{
	sigset_t mask;
	char address[32];
	bool started = true;

	children_signals_block(&mask);
	launch->signals = signalfd(-1, &mask, SFD_CLOEXEC);
	launch->kill_ms = UINT64_MAX;
	if (settings.aggregator == NULL) {
		started = children_winnowd_local(&launch->children, NULL, address);
		setenv("WINNOW_INSECURE_NO_KEY", "1", 1);
	}
	setenv("WINNOW_AGGREGATORS", settings.aggregator != NULL ? settings.aggregator : address,
	       1);
	started = started && set_environment(launch);
	for (uint32_t rank = 0; rank < launch->count && started; rank++)
		started = start_worker(launch, rank, command);
	if (!started) {
		cli_error(1, "cannot start processes: %s", strerror(errno));
		end_all(launch, 1);
	}
	watch(launch);
	return launch->status;
}

/* ---- arguments ---- */

/* The place of "--"; argc: there is none. */
static int split_arguments(int argc, char **argv)
{
	int at = 1;

	while (at < argc && strcmp(argv[at], "--") != 0)
		at++;
	return at < argc ? at : argc;
}

int cli_run(int argc, char **argv)
{
	static struct launch launch = {.children = {.grouped = true}};
	int split = split_arguments(argc, argv);
	int status = options_read(&options, split, argv);

	if (status != 0)
		return status == 1 ? 0 : status;
	if (split + 1 >= argc)
		return cli_error(2, "say what to run: winnow run -n 2 -- python3 train.py");
	launch.count = (uint32_t)settings.workers;
	launch.outputs = calloc((size_t)2 * launch.count, sizeof(*launch.outputs));
	if (launch.outputs == NULL)
		return cli_error(1, "out of memory");
	for (uint32_t i = 0; i < 2 * launch.count; i++)
		launch.outputs[i].fd = -1;
	status = run(&launch, argv + split + 1);
	free(launch.outputs);
	return status;
}
