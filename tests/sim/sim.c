// SPDX-License-Identifier: BSD-3-Clause
/*
 * sim.c - run seeds: sim FROM COUNT, or one of them with words: sim --seed N
 *
 * Exit status: 0 all right; 1 a seed failed, and the last lines say how to replay it.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/sim/scenario.h"

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A network without faults of any kind, and nobody pauses: nothing may be sent twice. */
static bool clean(const struct world_spec *spec)
{
	for (uint32_t i = 0; i < spec->jobs; i++)
		if (spec->job[i].fault != FAULT_NONE)
			return false;
	return spec->net.loss_ppm == 0 && spec->net.reorder_ppm == 0 &&
	       spec->net.duplicate_ppm == 0 && spec->net.rate_bytes_s == 0 &&
	       spec->pause_ppm == 0 &&
	       spec->net.delay_us_max == spec->net.delay_us_min; /* else packets overtake */
}

static bool run_seed(uint64_t seed, bool verbose, struct world_outcome *total)
{
	struct world_outcome outcome;
	struct world_spec spec;
	char about[1024];

	scenario_make(seed, &spec);
	scenario_describe(&spec, about, sizeof(about));
	if (verbose)
		printf("seed %llu: %s\n", (unsigned long long)seed, about);
	world_run(&spec, &outcome);
	if (outcome.ok && clean(&spec) &&
	    outcome.retransmits + outcome.dropped + outcome.forced > 0) {
		outcome.ok = false;
		snprintf(outcome.why, sizeof(outcome.why),
		         "%llu retransmissions, %llu useless packets and %llu forced NACKs on a "
		         "clean "
		         "network",
		         (unsigned long long)outcome.retransmits,
		         (unsigned long long)outcome.dropped, (unsigned long long)outcome.forced);
	}
	total->operations += outcome.operations;
	total->failures += outcome.failures;
	total->datagrams += outcome.datagrams;
	total->lost += outcome.lost + outcome.overflowed;
	total->retransmits += outcome.retransmits;
	if (verbose)
		printf("seed %llu: %s, %.3f s virtual, %llu operations, %llu errors as expected, "
		       "%llu datagrams, %llu lost, %llu overflowed, %llu sent again, %llu NACKs\n",
		       (unsigned long long)seed, outcome.ok ? "ok" : outcome.why,
		       (double)outcome.virtual_us / 1e6, (unsigned long long)outcome.operations,
		       (unsigned long long)outcome.failures, (unsigned long long)outcome.datagrams,
		       (unsigned long long)outcome.lost, (unsigned long long)outcome.overflowed,
		       (unsigned long long)outcome.retransmits, (unsigned long long)outcome.nacks);
	else if (!outcome.ok)
		printf("seed %llu: %s\n  %s\n", (unsigned long long)seed, outcome.why, about);
	return outcome.ok;
}

int main(int argc, char **argv)
{
	struct world_outcome total = {0};
	uint64_t from, count, bad = 0;
	double start = now_s();

	if (argc == 3 && strcmp(argv[1], "--seed") == 0)
		return run_seed(strtoull(argv[2], NULL, 10), true, &total) ? 0 : 1;
	if (argc != 3) {
		fprintf(stderr, "usage: sim FROM COUNT | sim --seed N\n");
		return 2;
	}
	from = strtoull(argv[1], NULL, 10);
	count = strtoull(argv[2], NULL, 10);
	for (uint64_t seed = from; seed < from + count && bad < 5; seed++) {
		if (run_seed(seed, false, &total))
			continue;
		bad++;
		printf("  replay: %s --seed %llu\n", argv[0], (unsigned long long)seed);
	}
	printf("%llu runs, %llu wrong: %llu operations right, %llu errors as expected, %llu "
	       "datagrams, "
	       "%llu lost, %llu sent again, %.0f s\n",
	       (unsigned long long)count, (unsigned long long)bad,
	       (unsigned long long)total.operations, (unsigned long long)total.failures,
	       (unsigned long long)total.datagrams, (unsigned long long)total.lost,
	       (unsigned long long)total.retransmits, now_s() - start);
	return bad > 0;
}
