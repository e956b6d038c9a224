/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tune.h - what the files of winnow tune share
 *
 * tune.c         options, and the order of the steps
 * tune_blocks.c  chooses block sizes, predicts their costs, finds the best one
 * tune_print.c   prints the table, as text and JSON
 * tune_plot.c    draws it
 * Operations come from source.h, and bytes from predict.h.
 */
#ifndef CLIENT_CLI_TUNE_H
#define CLIENT_CLI_TUNE_H

#include "client/cli/cli.h"
#include "client/cli/tune/predict.h"
#include "client/cli/tune/source.h"

#define TUNE_BLOCKS_MAX 32
/*
 * Block sizes within this factor of the fastest count as equally fast. The largest of them is best,
 * because each block costs the workers and the aggregator some nanoseconds.
 */
#define TUNE_NEAR 1.05

/* One block size. All fields but `predicted` are means over operations and workers. */
struct tune_row {
	uint32_t block;
	struct predict predicted;
	struct predict_flow sent, received;
	double time_s, d, united;
};

struct tune {
	struct source source;
	struct predict_net net;
	uint64_t op_bytes; /* The average bytes of a tensor. */
	double ring_s;     /* The time of a ring allreduce of these bytes. */
	uint32_t block_count, best;
	struct tune_row rows[TUNE_BLOCKS_MAX];
	char note[256]; /* A block size that is left out, and the reason; or "". */
};

/* Each returns 0, or an exit status after a line on stderr. If `blocks` is NULL, the usual sizes are chosen. */
int tune_blocks_choose(struct tune *tune, const char *blocks);
int tune_predict(struct tune *tune);

void tune_print(const struct tune *tune);
void tune_json(const struct tune *tune);

/* Draws the rows with gnuplot. The path ends in .svg or .png; an existing file stays unless the drawing succeeds. */
int tune_plot(const struct tune *tune, const char *path);

#endif /* CLIENT_CLI_TUNE_H */
