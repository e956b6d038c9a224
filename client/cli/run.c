// SPDX-License-Identifier: BSD-3-Clause
/* run.c - winnow run: starts a job's workers on this machine, and winnowd unless --aggregators names one */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "bitmap/control/options.h"
#include "client/cli/children.h"
#include "client/cli/cli.h"
#include "client/comm/comm_options.h"

#define LINE_BYTES 8192 /* Longer lines are cut into pieces. */
#define DRAIN_MS 200    /* How long the output of processes that workers started may pause. */

static struct {
	uint64_t workers;
	const char *aggregators;
	bool bare;
	uint64_t grace_us;
} settings;

static const struct option list[] = {
	{"workers", "N", OPTION_COUNT, &settings.workers, "2", NULL, 1, CHILDREN_MAX,
         "number of processes"},
	{"aggregators", "HOST:PORT[,..]", OPTION_TEXT, &settings.aggregators, NULL, NULL, 0, 0,
         "where winnowd listens; by default a new winnowd is started"},
	{"bare", NULL, OPTION_FLAG, &settings.bare, "0", NULL, 0, 0,
         "do not print the worker's number before each line"},
	{"grace", "TIME", OPTION_TIME, &settings.grace_us, "30s", NULL, 1000, 3.6e9,
         "how long workers may save their state before SIGKILL"},
	{0},
};

/* The names of mpirun and torchrun. */
static const struct option_alias aliases[] = {{"-np", "workers"},
                                              {"-n", "workers"},
                                              {"--np", "workers"},
                                              {"--nproc-per-node", "workers"},
                                              {"--nproc_per_node", "workers"},
                                              {0}};

static int command_at;

static const struct options options = {
	.program = "winnow run",
	.usage = "[-n N] [...] [--] COMMAND [ARG..]",
	.about = "Starts N processes of COMMAND on this machine. Each finds RANK, LOCAL_RANK, "
		 "GROUP_RANK, WORLD_SIZE,\n"
		 "LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and WINNOW_AGGREGATORS in its "
		 "environment, and\n"
		 "OMP_NUM_THREADS if it was not set. The winnowd that it starts uses the key of "
		 "WINNOW_KEY or\n"
		 "WINNOW_KEY_FILE, or a new one, which workers find in WINNOW_KEY.\n"
		 "When one process fails, the others are ended. The exit status is that of the "
		 "first that failed, or\n"
		 "128 plus its signal. SIGINT (Ctrl-C), SIGTERM, SIGHUP and SIGQUIT go to all "
		 "processes and end the\n"
		 "job. SIGUSR1 and SIGUSR2 go to all processes, and the job continues.",
	.examples = "  winnow run -n 4 python3 train.py\n"
		    "  winnow run -n 2 --aggregators 10.0.0.1:5555 python3 train.py\n",
	.list = list,
	.aliases = aliases,
	.section = "run",
	.command_at = &command_at,
};

struct output {
	uv_pipe_t pipe;
	FILE *to;
	uint32_t rank;
	size_t have;
	char line[LINE_BYTES];
};

static struct children children = {.grouped = true};
static struct output outputs[2 * CHILDREN_MAX];
static uv_timer_t drained;

/* ---- output ---- */

/* Training continues when the disk of its log is full. The exit status then tells of the lost lines. */
static void print_line(struct output *output, size_t bytes)
{
	bool whole = ferror(output->to) == 0;

	if (!settings.bare)
		fprintf(output->to, "[%u] ", output->rank);
	fwrite(output->line, 1, bytes, output->to);
	putc('\n', output->to);
	if (fflush(output->to) != 0 && whole)
		cli_error(1, "cannot write: %s; the workers continue, but their output is lost",
		          strerror(errno));
}

/* Progress bars begin their lines with a carriage return. */
static char *line_end(struct output *output)
{
	for (size_t i = 0; i < output->have; i++)
		if (output->line[i] == '\n' || (output->line[i] == '\r' && i + 1 < output->have &&
		                                output->line[i + 1] != '\n'))
			return output->line + i;
	return NULL;
}

static void print_lines(struct output *output)
{
	char *end;

	while ((end = line_end(output)) != NULL) {
		size_t bytes = (size_t)(end - output->line);

		if (bytes > 0 || *end == '\n')
			print_line(output, bytes);
		output->have -= bytes + 1;
		memmove(output->line, end + 1, output->have);
	}
	if (output->have == sizeof(output->line)) {
		print_line(output, output->have);
		output->have = 0;
	}
}

static void on_room(uv_handle_t *pipe, size_t wanted, uv_buf_t *out)
{
	struct output *output = pipe->data;

	(void)wanted;
	*out = uv_buf_init(output->line + output->have,
	                   (unsigned)(sizeof(output->line) - output->have));
}

static void on_read(uv_stream_t *pipe, ssize_t count, const uv_buf_t *unused)
{
	struct output *output = pipe->data;

	(void)unused;
	(void)uv_timer_again(&drained);
	if (count >= 0) {
		output->have += (size_t)count;
		print_lines(output);
		return;
	}
	if (output->have > 0)
		print_line(output, output->have);
	uv_close((uv_handle_t *)pipe, NULL);
}

/* ---- starting ---- */

static bool start_worker(uint32_t rank, char **command)
{
	int pipes[2][2];

	if (pipe2(pipes[0], O_CLOEXEC) != 0 || pipe2(pipes[1], O_CLOEXEC) != 0)
		return false;
	children_environment(1, 0, (uint32_t)settings.workers, rank);
	if (!children_worker(&children, command,
	                     (const int[]){CHILD_NOTHING, pipes[0][1], pipes[1][1]}))
		return false;
	for (uint32_t i = 0; i < 2; i++) {
		struct output *output = &outputs[2 * rank + i];

		close(pipes[i][1]);
		output->to = i == 0 ? stdout : stderr;
		output->rank = rank;
		uv_pipe_init(uv_default_loop(), &output->pipe, 0);
		output->pipe.data = output;
		if (uv_pipe_open(&output->pipe, pipes[i][0]) != 0 ||
		    uv_read_start((uv_stream_t *)&output->pipe, on_room, on_read) != 0)
			return false;
	}
	return true;
}

/* The environment may have a key, or ask for none, as for any worker. */
static int key_settle(void)
{
	struct winnow_config config = {0};
	const struct option keys[] = {COMM_OPTIONS_KEY(config), {0}};
	struct why why;

	for (const struct option *o = keys; o->name != NULL; o++)
		if (option_env(o, &why) != 0)
			return cli_error(2, "%s", why.text);
	return children_key(&config);
}

/* Sets the variables that are the same for all workers. */
static bool set_environment(void)
{
	long threads = sysconf(_SC_NPROCESSORS_ONLN) / (long)settings.workers;
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

static void on_drained(uv_timer_t *unused)
{
	(void)unused;
	uv_stop(uv_default_loop());
}

static bool job_start(void *command)
{
	char address[32];
	bool started = true;

	uv_timer_init(uv_default_loop(), &drained);
	if (settings.aggregators == NULL)
		started = children_winnowd_local(&children, (char *[]){NULL}, address);
	setenv("WINNOW_AGGREGATORS", settings.aggregators != NULL ? settings.aggregators : address,
	       1);
	started = started && set_environment();
	for (uint32_t rank = 0; rank < settings.workers && started; rank++)
		started = start_worker(rank, command);
	return started;
}

/* Prints the rest of the pipes, until all are closed or nothing has come for DRAIN_MS. */
static void outputs_drain(void)
{
	uv_timer_start(&drained, on_drained, DRAIN_MS, DRAIN_MS);
	uv_unref((uv_handle_t *)&drained);
	uv_run(uv_default_loop(), UV_RUN_DEFAULT);
}

int cli_run(int argc, char **argv)
{
	int status = options_read(&options, argc, argv);

	if (status != 0)
		return status == 1 ? 0 : status;
	if (command_at >= argc)
		return cli_error(
			2,
			"the command to run is missing, as in: winnow run -n 2 python3 train.py");
	status = settings.aggregators == NULL ? key_settle() : 0;
	if (status != 0)
		return status;
	children.patience_ms = settings.grace_us / 1000;
	status = children_run(&children, job_start, argv + command_at);
	if (children.count > 0)
		outputs_drain();
	return status == 0 && (ferror(stdout) || ferror(stderr)) ? 1 : status;
}
