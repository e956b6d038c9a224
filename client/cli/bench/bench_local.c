// SPDX-License-Identifier: BSD-3-Clause
/* bench_local.c - --local N: an aggregator and N workers on this machine */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/bench/bench_state.h"
#include "client/cli/children.h"
#include "client/cli/cli.h"

static struct children children;
static char address[32];
static volatile int ended; /* a child has ended: for winnow_config.give_up */

/* Without that one the others would go on looking for it, or waiting. */
static void child_ended(int number)
{
	(void)number;
	ended = 1;
}

static bool start_worker(uint32_t rank, uint32_t world, int argc, char **argv)
{
	char rank_text[24], world_text[24], aggregator[64], path[4096] = "";
	char local[] = "--local=0";
	char *last[] = {local, aggregator, rank_text, world_text, NULL}; /* later options win */
	char **arguments =
		calloc((size_t)argc + 1 + sizeof(last) / sizeof(last[0]), sizeof(*arguments));
	bool started = false;

	if (arguments != NULL && readlink("/proc/self/exe", path, sizeof(path) - 1) > 0) {
		snprintf(aggregator, sizeof(aggregator), "--aggregators=%s", address);
		snprintf(rank_text, sizeof(rank_text), "--rank=%u", rank);
		snprintf(world_text, sizeof(world_text), "--world=%u", world);
		arguments[0] = path;
		memcpy(arguments + 1, argv, (size_t)argc * sizeof(*argv));
		memcpy(arguments + 1 + argc, last, sizeof(last));
		started = children_worker(&children, arguments,
		                          (const int[]){CHILD_OURS, CHILD_NOTHING, CHILD_OURS});
	}
	free(arguments);
	return started;
}

/* Workers that will not all join would wait for a minute. */
static void workers_end(void)
{
	children_signal(&children, SIGTERM);
}

int bench_local_start(struct winnow_config *comm, uint32_t world, int argc, char **argv)
{
	const struct sigaction action = {.sa_handler = child_ended,
	                                 .sa_flags = SA_RESTART | SA_NOCLDSTOP};
	int status = children_key(comm);
	bool started;

	if (status != 0)
		return status;
	sigaction(SIGCHLD, &action, NULL);
	comm->give_up = &ended;
	comm->rank = 0;
	comm->world = world;
	comm->aggregators = address;
	started = children_winnowd_local(&children, "1", address);
	for (uint32_t rank = 1; rank < world && started; rank++)
		started = start_worker(rank, world, argc, argv);
	if (started)
		return 0;
	cli_error(1, "cannot start processes: %s", strerror(errno));
	workers_end();
	return bench_local_stop(1);
}

bool bench_local_lost(void)
{
	if (!ended)
		return false;
	if (waitpid(children.winnowd, NULL, WNOHANG) == children.winnowd) {
		children.winnowd = 0;
		cli_error(1, "the winnowd that was started here has ended");
	} else {
		cli_error(1, "a worker has ended before all had joined");
	}
	workers_end();
	return true;
}

/* Workers end by themselves and say why they fail; the aggregator is told to end. */
int bench_local_stop(int status)
{
	for (uint32_t i = 0; i < children.count; i++) {
		int how = 0;

		waitpid(children.pids[i], &how, 0);
		if (how == 0 || status != 0)
			continue;
		status = WEXITSTATUS(how);
		if (WIFSIGNALED(how))
			status = cli_error(128 + WTERMSIG(how), "rank %u was ended by signal %d",
			                   i + 1, WTERMSIG(how));
	}
	if (children.winnowd > 0) {
		kill(children.winnowd, SIGTERM);
		waitpid(children.winnowd, NULL, 0);
	}
	return status;
}
