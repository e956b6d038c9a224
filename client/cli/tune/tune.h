/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tune.h - what the files of winnow tune share
 *
 * tune.c         options, and what happens in which order
 * tune_blocks.c  which block sizes, what each would cost, which is best
 * tune_print.c   the table, as text and JSON;  tune_plot.c  the same as a picture
 * Operations come from source.h; bytes from predict.h.
 */
#ifndef CLIENT_CLI_TUNE_H
#define CLIENT_CLI_TUNE_H

#include "client/cli/cli.h"
#include "client/cli/tune/predict.h"
#include "client/cli/tune/source.h"

#define TUNE_BLOCKS_MAX 32
/*
 * Block sizes within this factor of the fastest count as equal, and then the larger one is better:
 * every block costs each worker and the aggregator some nanoseconds, whatever it holds.
 */
#define TUNE_NEAR 1.05

/* One block size. All but `predicted` are means of an operation, and of the workers. */
struct tune_row {
	uint32_t block;
	struct predict predicted;
	struct predict_flow sent, received;
	double time_s, d, united;
};

struct tune {
	struct source source;
	struct predict_net net;
	uint64_t op_bytes; /* of a worker's tensor, on the average */
	double ring_s;     /* what a ring would take for them */
	uint32_t block_count, best;
	struct tune_row rows[TUNE_BLOCKS_MAX];
	char note[256]; /* a block that is left out, and why; "" if none is */
};

/* Each returns an exit status, and says what is wrong. `blocks` NULL: the usual ones. */
int tune_blocks_choose(struct tune *tune, const char *blocks);
int tune_predict(struct tune *tune);

void tune_print(const struct tune *tune);
void tune_json(const struct tune *tune);

/* tune_plot - draws the rows with gnuplot; the path ends in .svg or .png. Without a whole picture one that is there stays. */
int tune_plot(const struct tune *tune, const char *path);

#endif /* CLIENT_CLI_TUNE_H */
