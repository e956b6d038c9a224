// SPDX-License-Identifier: BSD-3-Clause
/*
 * sim.c - run seeds: sim FROM COUNT, or one of them with words: sim --seed N; worlds whose members come and
 * go: sim --deaths, sim --split, sim --members; or whose paths lose much: sim --breaker; or measure: sim --share
 *
 * Exit status: 0 all right; 1 a seed failed, and the last lines say how to replay it.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/sim/scenario.h"

#define BAD_MAX 5 /* then it stops, and the last line says how many it has run */

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void report(uint64_t seed, const struct world_outcome *o)
{
	printf("seed %llu: %s, %.3f s virtual, %.3f s busy, %llu operations, %llu errors as "
	       "expected, %llu datagrams, %llu lost, %llu overflowed, %llu unsent, %llu PUSHes and "
	       "%llu RESULTs sent again, %llu STATUSes that list something, %llu that ask\n",
	       (unsigned long long)seed, o->ok ? "ok" : o->why, (double)o->virtual_us / 1e6,
	       (double)o->busy_us / 1e6, (unsigned long long)o->operations,
	       (unsigned long long)o->failures, (unsigned long long)o->datagrams,
	       (unsigned long long)o->lost, (unsigned long long)o->overflowed,
	       (unsigned long long)o->unsent, (unsigned long long)o->sent_again,
	       (unsigned long long)o->answered_again, (unsigned long long)o->asked,
	       (unsigned long long)o->asking);
	if (o->error[0] != '\0')
		printf("seed %llu: told \"%s\"\n", (unsigned long long)seed, o->error);
}

typedef void make_fn(uint64_t seed, struct world_spec *out);

static bool run_seed(make_fn *make, uint64_t seed, bool verbose, struct world_outcome *total)
{
	struct world_outcome outcome;
	struct world_spec spec;
	char about[2048];

	make(seed, &spec);
	scenario_describe(&spec, about, sizeof(about));
	if (verbose)
		printf("seed %llu: %s\n", (unsigned long long)seed, about);
	world_run(&spec, &outcome);
	total->operations += outcome.operations;
	total->failures += outcome.failures;
	total->datagrams += outcome.datagrams;
	total->lost += outcome.lost + outcome.overflowed;
	total->sent_again += outcome.sent_again;
	if (verbose)
		report(seed, &outcome);
	else if (!outcome.ok)
		printf("seed %llu: %s\n  %s\n", (unsigned long long)seed, outcome.why, about);
	scenario_free(&spec);
	return outcome.ok;
}

static bool run_seeds(make_fn *make, const char *program, const char *option, const char *from,
                      const char *count)
{
	struct world_outcome total = {0};
	uint64_t first = strtoull(from, NULL, 10), runs = 0, bad = 0;
	double start = now_s();

	for (; runs < strtoull(count, NULL, 10) && bad < BAD_MAX; runs++) {
		if (run_seed(make, first + runs, false, &total))
			continue;
		bad++;
		printf("  replay: %s %s %llu\n", program, option,
		       (unsigned long long)(first + runs));
	}
	printf("%llu runs, %llu wrong: %llu operations right, %llu errors as expected, %llu "
	       "datagrams, "
	       "%llu lost, %llu sent again, %.0f s\n",
	       (unsigned long long)runs, (unsigned long long)bad,
	       (unsigned long long)total.operations, (unsigned long long)total.failures,
	       (unsigned long long)total.datagrams, (unsigned long long)total.lost,
	       (unsigned long long)total.sent_again, now_s() - start);
	return bad == 0;
}

static int usage(int status)
{
	fprintf(stderr,
	        "usage: sim FROM COUNT     worlds from seeds\n"
	        "       sim --seed N       one of them, with words\n"
	        "       sim --deaths [K [WORKERS AGGREGATORS]]   members that die before each "
	        "event, a second one before "
	        "each K-th\n"
	        "       sim --death WORKERS AGGREGATORS SEED [FAULT..]   one of these worlds\n"
	        "       sim --split        a worker that is cut off while an aggregator is "
	        "restarted\n"
	        "       sim --members FROM COUNT   others from seeds\n"
	        "       sim --sites FROM COUNT     worlds with two levels of aggregators, from "
	        "seeds; "
	        "--sites N: one of them, with words\n"
	        "       sim --breaker      loss that ends a job, and loss that does not\n"
	        "       sim --share [NAME] what jobs get of a queue that they share:\n");
	share_list();
	return status;
}

static bool deaths(int argc, char **argv)
{
	uint32_t numbers[3] = {0};

	for (int i = 0; i < argc; i++)
		numbers[i] = (uint32_t)atoi(argv[i]);
	return members_walk(numbers[0], numbers[1], numbers[2]);
}

int main(int argc, char **argv)
{
	struct world_outcome total = {0};

	if (argc == 3 && strcmp(argv[1], "--seed") == 0)
		return run_seed(scenario_make, strtoull(argv[2], NULL, 10), true, &total) ? 0 : 1;
	if (argc >= 2 && argc <= 3 && strcmp(argv[1], "--share") == 0)
		return share_run(argv[2]) ? 0 : 1;
	if (argc >= 2 && argc <= 5 && argc != 4 && strcmp(argv[1], "--deaths") == 0)
		return deaths(argc - 2, argv + 2) ? 0 : 1;
	if (argc == 4 && strcmp(argv[1], "--members") == 0)
		return members_seeds(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10)) ? 0
		                                                                               : 1;
	if (argc == 2 && strcmp(argv[1], "--split") == 0)
		return members_split() ? 0 : 1;
	if (argc == 2 && strcmp(argv[1], "--breaker") == 0)
		return breaker_worlds() ? 0 : 1;
	if (argc >= 2 && strcmp(argv[1], "--death") == 0)
		return members_replay(argc - 2, argv + 2) ? 0 : 1;
	if (argc == 3 && strcmp(argv[1], "--sites") == 0)
		return run_seed(scenario_sites, strtoull(argv[2], NULL, 10), true, &total) ? 0 : 1;
	if (argc == 4 && strcmp(argv[1], "--sites") == 0)
		return run_seeds(scenario_sites, argv[0], "--sites", argv[2], argv[3]) ? 0 : 1;
	if (argc == 3)
		return run_seeds(scenario_make, argv[0], "--seed", argv[1], argv[2]) ? 0 : 1;
	return usage(argc == 2 && strcmp(argv[1], "--help") == 0 ? 0 : 2);
}
