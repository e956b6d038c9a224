// SPDX-License-Identifier: BSD-3-Clause
/* run.c - winnow run -n N -- COMMAND: a job's workers on this machine, and winnowd if there is none */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "aggregator/control/options.h"
#include "client/cli/bench/bench.h"
#include "client/cli/cli.h"

#define WORKERS_MAX 512
#define LINE_BYTES 8192  /* longer lines come in pieces */
#define PATIENCE_MS 5000 /* between SIGTERM and SIGKILL */
#define DRAIN_MS 200     /* for the last words of what workers have started */

static struct {
	uint64_t workers;
	const char *aggregator;
	bool bare;
} settings;

static const struct option list[] = {
	{"workers", "N", OPTION_COUNT, &settings.workers, "2", NULL, 1, WORKERS_MAX,
         "how many processes; also -n N"},
	{"aggregators", "HOST:PORT[,..]", OPTION_TEXT, &settings.aggregator, NULL, NULL, 0, 0,
         "where winnowd listens; without it, one is started for the job"},
	{"bare", NULL, OPTION_FLAG, &settings.bare, "0", NULL, 0, 0,
         "print lines as they are, without the worker's number in front"},
	{0},
};

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
	uint32_t count, running;
	pid_t daemon; /* our own winnowd; 0: none */
	pid_t pids[WORKERS_MAX];
	struct output *outputs; /* [2 * count] */
	int signals;            /* a signalfd */
	int status;             /* of the first that failed */
	uint64_t kill_ms;       /* when patience ends; UINT64_MAX: nobody has been told to end */
};

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- starting ---- */

static void set_number(const char *name, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	setenv(name, text, 1);
}

/* In the child: its own process group, so that what it starts ends with it; and we with our parent. */
static void child_begin(pid_t parent)
{
	sigset_t none;

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static void child_run(char **command)
{
	execvp(command[0], command);
	fprintf(stderr, "winnow run: cannot run %s: %s\n", command[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static int start_worker(struct launch *launch, uint32_t rank, char **command)
{
	int pipes[2][2];
	pid_t parent = getpid(), child;

	if (pipe2(pipes[0], O_CLOEXEC) != 0 || pipe2(pipes[1], O_CLOEXEC) != 0)
		return -1;
	child = fork();
	if (child < 0)
		return -1;
	if (child == 0) {
		int nothing = open("/dev/null", O_RDONLY);

		child_begin(parent);
		dup2(nothing, 0);
		dup2(pipes[0][1], 1);
		dup2(pipes[1][1], 2);
		set_number("RANK", rank);
		set_number("LOCAL_RANK", rank);
		child_run(command);
	}
	setpgid(child, child);
	launch->pids[rank] = child;
	launch->running++;
	for (uint32_t i = 0; i < 2; i++) {
		struct output *output = &launch->outputs[2 * rank + i];

		close(pipes[i][1]);
		fcntl(pipes[i][0], F_SETFL, O_NONBLOCK);
		*output = (struct output){
			.fd = pipes[i][0], .to = i == 0 ? stdout : stderr, .rank = rank};
	}
	return 0;
}

static int start_winnowd(struct launch *launch)
{
	char path[4096], address[32], listen[] = "--listen", key[] = "--insecure-no-key",
				      metrics[] = "--metrics", no[] = "no";
	char *command[] = {path, listen, address, key, metrics, no, NULL};
	pid_t parent = getpid();
	int port = bench_free_port();

	if (port < 0)
		return -1;
	snprintf(address, sizeof(address), "127.0.0.1:%d", port);
	bench_winnowd_path(path, sizeof(path));
	fflush(stdout);
	launch->daemon = fork();
	if (launch->daemon == 0) {
		child_begin(parent);
		setenv("WINNOW_LOG", "error", 1);
		if (freopen("/dev/null", "w", stdout) == NULL)
			_exit(1);
		child_run(command);
	}
	setenv("WINNOW_AGGREGATORS", address, 1);
	setenv("WINNOW_INSECURE_NO_KEY", "1", 1);
	unsetenv("WINNOW_KEY");
	unsetenv("WINNOW_KEY_FILE");
	return launch->daemon > 0 ? 0 : -1;
}

/* What all workers find in their environment. */
static int set_environment(const struct launch *launch)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	int port = bench_free_port();
	char job[32];

	if (port < 0)
		return -1;
	set_number("WORLD_SIZE", launch->count);
	set_number("LOCAL_WORLD_SIZE", launch->count);
	set_number("GROUP_RANK", 0); /* all are on one host */
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	set_number("MASTER_PORT", (uint64_t)port);
	snprintf(job, sizeof(job), "run-%d", (int)getpid());
	setenv("WINNOW_JOB", job, 0);
	if (getenv("OMP_NUM_THREADS") == NULL)
		set_number("OMP_NUM_THREADS",
		           cores > (long)launch->count ? (uint64_t)cores / launch->count : 1);
	return 0;
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

static void kill_all(const struct launch *launch, int number)
{
	for (uint32_t i = 0; i < launch->count; i++)
		if (launch->pids[i] > 0)
			kill(-launch->pids[i], number);
}

static void end_all(struct launch *launch, int status)
{
	if (launch->status == 0)
		launch->status = status;
	if (launch->kill_ms != UINT64_MAX)
		return;
	launch->kill_ms = now_ms() + PATIENCE_MS;
	kill_all(launch, SIGTERM);
}

static int status_of(int wait_status)
{
	return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

static void worker_ended(struct launch *launch, uint32_t rank, int wait_status)
{
	int status = status_of(wait_status);

	kill(-launch->pids[rank], SIGKILL); /* what it has left behind */
	launch->pids[rank] = 0;
	launch->running--;
	if (status == 0 || launch->kill_ms != UINT64_MAX)
		return;
	fprintf(stderr, "winnow run: worker %u %s %d: ending the others\n", rank,
	        WIFSIGNALED(wait_status) ? "was ended by signal" : "has failed with exit status",
	        WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : status);
	end_all(launch, status);
}

static void reap(struct launch *launch)
{
	int wait_status;
	pid_t pid;

	while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
		if (pid == launch->daemon) {
			launch->daemon = 0;
			fprintf(stderr, "winnow run: winnowd has ended: ending the workers\n");
			end_all(launch, 1);
			continue;
		}
		for (uint32_t i = 0; i < launch->count; i++)
			if (launch->pids[i] == pid)
				worker_ended(launch, i, wait_status);
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

/* False when there was nothing for `wait_ms`. */
static bool turn(struct launch *launch, int wait_ms)
{
	struct pollfd fds[2 * WORKERS_MAX + 1];
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
	while (launch->running > 0) {
		uint64_t now = now_ms();

		if (now >= launch->kill_ms) {
			kill_all(launch, SIGKILL);
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
	if (launch->daemon > 0) {
		kill(launch->daemon, SIGTERM);
		waitpid(launch->daemon, NULL, 0);
	}
}

static int run(struct launch *launch, char **command)
{
	sigset_t mask;

	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGHUP);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	launch->signals = signalfd(-1, &mask, SFD_CLOEXEC);
	launch->kill_ms = UINT64_MAX;
	if (settings.aggregator != NULL)
		setenv("WINNOW_AGGREGATORS", settings.aggregator, 1);
	else if (start_winnowd(launch) != 0)
		end_all(launch, 1);
	for (uint32_t rank = 0; rank < launch->count && launch->status == 0; rank++) {
		if (rank == 0 && set_environment(launch) != 0)
			end_all(launch, 1);
		else if (start_worker(launch, rank, command) != 0)
			end_all(launch, 1);
	}
	if (launch->status != 0)
		fprintf(stderr, "winnow run: cannot start processes: %s\n", strerror(errno));
	watch(launch);
	return launch->status;
}

/* ---- arguments ---- */

/* The place of "--"; argc: there is none. "-n" becomes the option that it stands for. */
static int split_arguments(int argc, char **argv)
{
	static char workers[] = "--workers";

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--") == 0)
			return i;
		if (strcmp(argv[i], "-n") == 0)
			argv[i] = workers;
	}
	return argc;
}

int cli_run(int argc, char **argv)
{
	static struct launch launch;
	int split = split_arguments(argc, argv);
	int status = options_read(&options, split, argv);

	if (status != 0)
		return status == 1 ? 0 : status;
	if (split + 1 >= argc) {
		fprintf(stderr,
		        "winnow run: say what to run: winnow run -n 2 -- python3 train.py\n");
		return 2;
	}
	launch.count = (uint32_t)settings.workers;
	launch.outputs = calloc((size_t)2 * launch.count, sizeof(*launch.outputs));
	if (launch.outputs == NULL) {
		fprintf(stderr, "winnow run: out of memory\n");
		return 1;
	}
	for (uint32_t i = 0; i < 2 * launch.count; i++)
		launch.outputs[i].fd = -1;
	status = run(&launch, argv + split + 1);
	free(launch.outputs);
	return status;
}
