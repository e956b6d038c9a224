// SPDX-License-Identifier: BSD-3-Clause
/*
 * scenario_breaker.c - see scenario.h
 *
 * Links of 4 Mbit/s, 250 us one way, and operations that take longer than what ends a job. The judge of
 * all worlds compares results, and knows what each worker must be told where a fault ends a job
 * (world_fault.c). This file says which worlds must end, and sees that the others lasted.
 */

#include "tests/sim/scenario.h"

#include <stdio.h>

#include "client/winnow.h"

#define WORKERS 2
#define SEEDS 2
#define BLOCK 360 /* f32: one block a frame, which fills a datagram */
#define DELAY_US 250
#define RATE_BYTES_S 500000
#define OP_BYTES (3u << 18)
#define SECOND_US UINT64_C(1000000)
#define LASTS_US (20 * SECOND_US) /* twice what ends a job */

static const struct kind {
	const char *name;
	bool private_network, ends;
	uint32_t random_ppm; /* lost everywhere, both ways */
	uint32_t silence_us; /* 0: 2 s */
	uint32_t fault_count;
	struct fault_spec faults[WORLD_FAULTS_MAX];
} kinds[] = {
	{"30 % to the aggregator", .ends = true, .fault_count = 1,
         .faults[0].kind = FAULT_LOSSY_OUT},
	{"30 % from it", .ends = true, .fault_count = 1, .faults[0].kind = FAULT_LOSSY_IN},
	{"30 % to it, private", true, .fault_count = 1, .faults[0].kind = FAULT_LOSSY_OUT},
	{"30 % from it, private", true, .fault_count = 1, .faults[0].kind = FAULT_LOSSY_IN},
	{"30 % to it with a pause", .fault_count = 2,
         .faults = {{.kind = FAULT_LOSSY_OUT, .for_us = 8 * SECOND_US},
                    {.kind = FAULT_LOSSY_OUT,
                     .after_us = 11 * SECOND_US,
                     .for_us = 8 * SECOND_US}}},
	{"5 % at random", .random_ppm = 50000},
	/* The check of the path takes longer than what ends a job, and says more. */
	{"what is large to it, at length", .ends = true, .fault_count = 1,
         .silence_us = 16 * SECOND_US, .faults[0].kind = FAULT_NARROW_OUT},
	{"what is large from it, at length", .ends = true, .fault_count = 1,
         .silence_us = 16 * SECOND_US, .faults[0].kind = FAULT_NARROW_IN},
};

static struct simnet_path way(const struct kind *kind)
{
	return (struct simnet_path){.delay_us_min = DELAY_US,
	                            .delay_us_max = DELAY_US,
	                            .loss_ppm = kind->random_ppm,
	                            .rate_bytes_s = RATE_BYTES_S,
	                            .queue_bytes = 200000};
}

static void job_make(const struct kind *kind, uint64_t seed, struct job_spec *job)
{
	*job = (struct job_spec){.world = WORKERS,
	                         .eager_ppm = 1000000,
	                         .op_count = WORLD_OPS_MAX,
	                         .fault_count = kind->fault_count};
	for (uint32_t i = 0; i < WORLD_OPS_MAX; i++)
		job->ops[i] = (struct op_spec){.seed = seed + i,
		                               .tag = i + 1,
		                               .count = OP_BYTES / 4 / BLOCK * BLOCK,
		                               .block = BLOCK,
		                               .dtype = WINNOW_F32,
		                               .reduction = WINNOW_SUM,
		                               .run = BLOCK,
		                               .density_ppm = 1000000};
	for (uint32_t i = 0; i < kind->fault_count; i++) {
		job->faults[i] = kind->faults[i];
		job->faults[i].who = (uint32_t)seed % WORKERS;
		job->faults[i].after_us += SECOND_US / 2;
	}
}

static void world_make(const struct kind *kind, uint64_t seed, struct world_spec *out)
{
	*out = (struct world_spec){.seed = seed,
	                           .limit_us = 600 * SECOND_US,
	                           .private_network = kind->private_network};
	scenario_calm(out, kind->name, 1, WORKERS, DELAY_US);
	out->aggregators[0].in = (struct simnet_path){0};
	for (uint32_t i = 0; i < WORKERS; i++) {
		out->workers[i].out = out->workers[i].in = way(kind);
		if (kind->silence_us != 0)
			out->workers[i].silence_us = kind->silence_us;
	}
	job_make(kind, seed, &out->jobs[0]);
}

/* NULL: as it should be. */
static const char *judge(const struct kind *kind, const struct world_outcome *out)
{
	if (!out->ok)
		return out->why;
	if (kind->ends)
		return out->failures > 0 ? NULL : "the job went on";
	if (out->failures > 0)
		return "the job ended";
	return out->virtual_us >= LASTS_US ? NULL : "it was over too soon to tell";
}

static bool run(const struct kind *kind, uint64_t seed)
{
	struct world_outcome outcome;
	struct world_spec spec;
	const char *wrong;

	world_make(kind, seed, &spec);
	world_run(&spec, &outcome);
	wrong = judge(kind, &outcome);
	printf("%s, seed %llu: %.1f s, %llu of %llu datagrams lost: %s%s\n", kind->name,
	       (unsigned long long)seed, (double)outcome.virtual_us / 1e6,
	       (unsigned long long)outcome.lost, (unsigned long long)outcome.datagrams,
	       wrong != NULL ? "WRONG: " : "",
	       wrong != NULL              ? wrong
	       : outcome.error[0] != '\0' ? outcome.error
	                                  : "it went on");
	fflush(stdout);
	scenario_free(&spec);
	return wrong == NULL;
}

bool breaker_worlds(void)
{
	bool well = true;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		for (uint64_t seed = 1; seed <= SEEDS; seed++)
			well = run(&kinds[i], seed) && well;
	return well;
}
