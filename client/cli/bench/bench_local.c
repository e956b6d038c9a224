// SPDX-License-Identifier: BSD-3-Clause
/*
 * bench_local.c - --local N: starts an aggregator and N workers here, which run this command with its options. With
 * --sites S the workers join through S sites, in blocks of ranks.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/bench/bench_state.h"
#include "client/cli/children.h"

/*
 * A worker may fail at its end, when others still have to report. Without a limit, those that wait for it to join would
 * wait for a minute.
 */
static struct children children = {.linger_ms = 3000};

_Static_assert(1 + BENCH_SITES_MAX <= CHILDREN_WINNOWDS_MAX, "a parent and its sites");

struct local {
	uint32_t world, sites;
	int argc;
	char **argv;
};

static bool start_worker(const struct local *local, uint32_t rank, const char *address)
{
	char rank_text[24], world_text[24], aggregator[64], path[4096] = "", alone[] = "--local=0";
	char *last[] = {alone, aggregator, rank_text, world_text, NULL}; /* later options win */
	size_t count = (size_t)local->argc + 1 + sizeof(last) / sizeof(last[0]);
	char **arguments = calloc(count, sizeof(*arguments));
	bool started = false;

	if (arguments != NULL && readlink("/proc/self/exe", path, sizeof(path) - 1) > 0) {
		snprintf(aggregator, sizeof(aggregator), "--aggregators=%s", address);
		snprintf(rank_text, sizeof(rank_text), "--rank=%u", rank);
		snprintf(world_text, sizeof(world_text), "--world=%u", local->world);
		arguments[0] = path;
		memcpy(arguments + 1, local->argv, (size_t)local->argc * sizeof(*local->argv));
		memcpy(arguments + 1 + local->argc, last, sizeof(last));
		/* Rank 0 alone prints, because all have measured the same. */
		started = children_worker(&children, arguments,
		                          (const int[]){CHILD_OURS,
		                                        rank == 0 ? CHILD_OURS : CHILD_NOTHING,
		                                        CHILD_OURS});
	}
	free(arguments);
	return started;
}

/* Starts a site and its workers. Sites and their parent must have as many data threads. */
static bool start_site(const struct local *local, uint32_t site, char *threads,
                       const char *parent_address)
{
	char name[24], parent[48], address[32];
	bool started;

	snprintf(name, sizeof(name), "--site=site%u", site);
	snprintf(parent, sizeof(parent), "--parent=%s", parent_address);
	started =
		children_winnowd_local(&children, (char *[]){threads, parent, name, NULL}, address);
	for (uint32_t rank = 0; rank < local->world && started; rank++)
		if ((uint64_t)rank * local->sites / local->world == site)
			started = start_worker(local, rank, address);
	return started;
}

static bool start_all(void *context)
{
	const struct local *local = context;
	char threads[] = "--threads=1", address[32];
	bool started = children_winnowd_local(&children, (char *[]){threads, NULL}, address);

	for (uint32_t site = 0; site < local->sites && started; site++)
		started = start_site(local, site, threads, address);
	for (uint32_t rank = 0; rank < local->world && local->sites == 0 && started; rank++)
		started = start_worker(local, rank, address);
	return started;
}

int bench_local(struct bench_settings *settings, int argc, char **argv)
{
	struct local local = {
		.world = settings->local, .sites = settings->sites, .argc = argc, .argv = argv};
	int status = children_key(&settings->comm);

	return status != 0 ? status : children_run(&children, start_all, &local);
}
