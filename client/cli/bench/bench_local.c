// SPDX-License-Identifier: BSD-3-Clause
/* bench_local.c - --local N of bench and tune: an aggregator and N workers on this machine */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/bench/bench.h"

#define CHILDREN_MAX 513

static pid_t children[CHILDREN_MAX];
static uint32_t child_count;
static char address[32];
static const char *command; /* "bench" */

int bench_free_port(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(any);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = -1;

	if (fd >= 0 && bind(fd, (const struct sockaddr *)&any, sizeof(any)) == 0 &&
	    getsockname(fd, (struct sockaddr *)&any, &size) == 0)
		port = ntohs(any.sin_port);
	if (fd >= 0)
		close(fd);
	return port;
}

/* A child that ends with us, whatever ends us. */
static pid_t child_start(const char *const *argv, bool quiet)
{
	pid_t parent = getpid(), child = fork();

	if (child != 0)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	if (quiet && freopen("/dev/null", "w", stdout) == NULL)
		_exit(1);
	execvp(argv[0], (char *const *)(uintptr_t)argv);
	fprintf(stderr, "winnow %s: cannot run %s: %s\n", command, argv[0], strerror(errno));
	_exit(127);
}

void bench_winnowd_path(char *path, size_t room)
{
	ssize_t length = readlink("/proc/self/exe", path, room - 16);
	char *slash;

	path[length > 0 ? length : 0] = '\0';
	slash = strrchr(path, '/');
	if (slash != NULL) {
		strcpy(slash + 1, "winnowd");
		if (access(path, X_OK) == 0)
			return;
	}
	strcpy(path, "winnowd");
}

static bool start_winnowd(void)
{
	char path[4096];
	const char *arguments[] = {path,        "--listen", address,     "--insecure-no-key",
	                           "--threads", "1",        "--metrics", "no",
	                           NULL};

	bench_winnowd_path(path, sizeof(path));
	/* Its log is of interest only when it does not start, and then it is one line. */
	setenv("WINNOW_LOG", "error", 1);
	children[child_count] = child_start(arguments, true);
	return children[child_count++] > 0;
}

static bool start_worker(uint32_t rank, uint32_t world, int argc, char **argv)
{
	char rank_text[16], world_text[16], path[4096];
	const char **arguments = calloc((size_t)argc + 16, sizeof(*arguments));
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
	int n = 0;

	if (arguments == NULL || length <= 0) {
		free((void *)(uintptr_t)arguments);
		return false;
	}
	path[length] = '\0';
	snprintf(rank_text, sizeof(rank_text), "%u", rank);
	snprintf(world_text, sizeof(world_text), "%u", world);
	arguments[n++] = path;
	arguments[n++] = command;
	for (int i = 1; i < argc; i++)
		arguments[n++] = argv[i];
	/* Later options win. */
	arguments[n++] = "--local=0";
	arguments[n++] = "--insecure-no-key";
	arguments[n++] = "--aggregator";
	arguments[n++] = address;
	arguments[n++] = "--rank";
	arguments[n++] = rank_text;
	arguments[n++] = "--world";
	arguments[n++] = world_text;
	children[child_count] = child_start(arguments, true);
	free((void *)(uintptr_t)arguments);
	return children[child_count++] > 0;
}

int bench_local_begin(uint32_t world, int argc, char **argv, const char **out)
{
	int port = bench_free_port();

	command = argv[0];
	if (port < 0) {
		fprintf(stderr, "winnow %s: no free port on 127.0.0.1\n", command);
		return 1;
	}
	snprintf(address, sizeof(address), "127.0.0.1:%d", port);
	*out = address;
	unsetenv("WINNOW_KEY");
	unsetenv("WINNOW_KEY_FILE");
	fflush(stdout);
	if (!start_winnowd())
		goto fail;
	for (uint32_t rank = 1; rank < world; rank++)
		if (!start_worker(rank, world, argc, argv))
			goto fail;
	return 0;
fail:
	fprintf(stderr, "winnow %s: cannot start processes: %s\n", command, strerror(errno));
	bench_local_stop();
	return 1;
}

int bench_local_start(struct bench_settings *settings, int argc, char **argv)
{
	settings->rank = 0;
	settings->world = settings->local;
	settings->insecure_no_key = true;
	settings->key_file = settings->key = NULL;
	return bench_local_begin((uint32_t)settings->world, argc, argv, &settings->aggregator);
}

void bench_local_stop(void)
{
	/* Workers end by themselves; the aggregator, the first child, is told to. */
	for (uint32_t i = 1; i < child_count; i++)
		waitpid(children[i], NULL, 0);
	if (child_count > 0 && children[0] > 0) {
		kill(children[0], SIGTERM);
		waitpid(children[0], NULL, 0);
	}
	child_count = 0;
}
