// SPDX-License-Identifier: BSD-3-Clause
/* tune_reasons.c - what makes the best block size better than its neighbours, in words */

#include <stdio.h>

#include "client/cli/tune/tune.h"

/* The direction that decides: what workers send, or what they receive. */
static const char *const limit_texts[LIMIT_COUNT] = {
	[LIMIT_SEND] = "what a worker sends",
	[LIMIT_RECEIVE] = "what a worker receives: the union",
	[LIMIT_COLLECT] = "what an aggregator receives from all workers",
	[LIMIT_SPREAD] = "what an aggregator sends to all workers",
};

static enum predict_limit limit_of(const struct predict *p)
{
	enum predict_limit limit = LIMIT_SEND;

	for (uint32_t i = 1; i < LIMIT_COUNT; i++)
		if (p->limit_s[i] > p->limit_s[limit])
			limit = (enum predict_limit)i;
	return limit;
}

static struct predict_flow flow_of(const struct predict *p, enum predict_limit limit)
{
	return limit == LIMIT_SEND || limit == LIMIT_COLLECT ? predict_sent_mean(p) : p->received;
}

/* The best against another one, in the bytes that decide. */
static void compare(const struct tune *tune, uint32_t other, FILE *out)
{
	const struct tune_row *best = &tune->rows[tune->best], *row = &tune->rows[other];
	enum predict_limit limit = limit_of(&best->predicted);
	struct predict_flow a = flow_of(&best->predicted, limit);
	struct predict_flow b = flow_of(&row->predicted, limit);
	double whole = (double)predict_bytes(&a) / 100;
	double data = ((double)b.data_bytes - (double)a.data_bytes) / whole;
	double heads = ((double)b.head_bytes - (double)a.head_bytes) / whole;
	double maps = ((double)b.map_bytes - (double)a.map_bytes) / whole;

	fprintf(out,
	        "  block %u takes %+.1f %%: blocks and the zeros in them %+.1f, headers %+.1f, "
	        "bitmaps %+.1f\n",
	        row->block, (row->time_s / best->time_s - 1) * 100, data, heads, maps);
}

/* With the next size that differs by more than what counts as equal, or the last, if there is any. */
static void compare_next(const struct tune *tune, int step, FILE *out)
{
	double best_s = tune->rows[tune->best].time_s;
	int64_t last = step < 0 ? 0 : (int64_t)tune->block_count - 1, i = tune->best;

	while (i != last) {
		double ratio = tune->rows[i += step].time_s / best_s;

		if (ratio > TUNE_NEAR || ratio < 1 / TUNE_NEAR)
			break;
	}
	if (i != tune->best)
		compare(tune, (uint32_t)i, out);
}

/* The best is not the one that loads the link least. */
static void explain_choice(const struct tune *tune, FILE *out)
{
	const struct tune_row *best = &tune->rows[tune->best];
	const struct tune_row *least = &tune->rows[tune->predicted_best];

	if (least == best)
		return;
	if (tune->settings->comm.aggregators != NULL && tune->settings->local == 0)
		fprintf(out,
		        "  block %u would take %.1f %% less of the link, but what was measured "
		        "decides\n",
		        least->block, (1 - least->time_s / best->time_s) * 100);
	else
		fprintf(out,
		        "  block %u is %.1f %% better, but of what is within %.0f %% the larger "
		        "costs less CPU time\n",
		        least->block, (1 - least->time_s / best->time_s) * 100,
		        (TUNE_NEAR - 1) * 100);
}

void tune_reasons(const struct tune *tune, FILE *out)
{
	const struct tune_row *best = &tune->rows[tune->best];
	const struct tune_row *fastest = &tune->rows[tune->measured_best];

	fprintf(out, "Best: block %u. The link is busy with %s.\n", best->block,
	        limit_texts[limit_of(&best->predicted)]);
	compare_next(tune, -1, out);
	compare_next(tune, 1, out);
	explain_choice(tune, out);
	if (best->d > 0.95)
		fprintf(out,
		        "  the gradients are dense: hardly any block is zero, whatever its size\n");
	if (tune->settings->local != 0 && fastest->measured_s * 1.05 < best->measured_s)
		fprintf(out,
		        "  on this machine block %u was faster by %.0f %%: its CPUs decide, not a "
		        "link\n",
		        fastest->block, (best->measured_s / fastest->measured_s - 1) * 100);
	if (tune->ring_s > 0 && tune->ring_s < best->time_s)
		fprintf(out,
		        "  a ring would take %.0f %% of that: few zeros, few workers, or an "
		        "aggregator with a port no faster than theirs\n",
		        100 * tune->ring_s / best->time_s);
}
