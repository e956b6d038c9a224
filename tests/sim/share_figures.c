// SPDX-License-Identifier: BSD-3-Clause
/* share_figures.c - see share.h */

#include "tests/sim/share.h"

#include <math.h>
#include <stdlib.h>

/* What a queue had taken of a flow by then. */
static uint64_t bytes_at(const struct share *s, uint32_t queue, uint32_t flow, uint64_t at_us)
{
	uint32_t i = (uint32_t)(at_us / SAMPLE_US);

	if (s->measures.sample_count == 0)
		return 0;
	if (i >= s->measures.sample_count)
		i = s->measures.sample_count - 1;
	return s->measures.samples[i].bytes[queue - 1][flow];
}

double share_part(const struct share *s, uint32_t queue, const uint32_t flows[2],
                  const uint64_t from_to_us[2])
{
	double a = (double)(bytes_at(s, queue, flows[0], from_to_us[1]) -
	                    bytes_at(s, queue, flows[0], from_to_us[0]));
	double b = (double)(bytes_at(s, queue, flows[1], from_to_us[1]) -
	                    bytes_at(s, queue, flows[1], from_to_us[0]));

	return a + b > 0 ? a / (a + b) : 0;
}

void share_together(const struct share *s, uint64_t from_to_us[2])
{
	from_to_us[0] = 0;
	from_to_us[1] = (uint64_t)s->measures.sample_count * SAMPLE_US;
	for (uint32_t j = 0; j < s->spec.job_count; j++) {
		const struct job_measures *job = &s->measures.jobs[j];

		if (job->first_us > from_to_us[0])
			from_to_us[0] = job->first_us;
		if (job->time_count > 0 && job->last_us < from_to_us[1])
			from_to_us[1] = job->last_us;
	}
}

double share_used(const struct share *s, uint32_t queue, const uint64_t from_to_us[2])
{
	uint64_t bytes = 0;

	for (uint32_t f = 0; f < s->spec.job_count + s->spec.cross_count; f++)
		bytes +=
			bytes_at(s, queue, f, from_to_us[1]) - bytes_at(s, queue, f, from_to_us[0]);
	return (double)bytes * 8e6 / (double)(from_to_us[1] - from_to_us[0]) /
	       (double)s->spec.queues[queue - 1].rate_bits_s;
}

static int ascending(const void *a, const void *b)
{
	const struct op_time *x = a, *y = b;

	return (x->us > y->us) - (x->us < y->us);
}

double share_time_at(struct share *s, uint32_t job, double part)
{
	struct job_measures *j = &s->measures.jobs[job];
	uint32_t count = 0;
	uint64_t all_us[2];

	share_together(s, all_us);
	for (uint32_t i = 0; i < j->time_count; i++)
		if (j->times[i].end_us <= all_us[1] &&
		    j->times[i].end_us - j->times[i].us >= all_us[0])
			j->times[count++] = j->times[i];
	j->time_count = count;
	if (count == 0)
		return (double)NAN;
	qsort(j->times, count, sizeof(*j->times), ascending);
	return (double)j->times[(uint32_t)((count - 1) * part + 0.5)].us;
}

double share_took_us(const struct share *s, uint32_t job)
{
	return (double)(s->measures.jobs[job].last_us - s->measures.jobs[job].first_us);
}

double share_waiting_ms(const struct share *s, uint64_t from_us)
{
	const struct world_sample *samples = s->measures.samples;
	uint64_t all_us[2], from = from_us / SAMPLE_US, to;

	share_together(s, all_us);
	to = all_us[1] / SAMPLE_US;
	if (to <= from || to >= s->measures.sample_count)
		return HUGE_VAL;
	return (samples[to].waiting[0] - samples[from].waiting[0]) /
	       (double)(samples[to].at_us - samples[from].at_us) * 8e3 /
	       (double)s->spec.queues[0].rate_bits_s;
}
