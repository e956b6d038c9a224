/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tune.h - what the files of winnow tune share
 *
 * tune.c          options, and what happens in which order
 * tune_blocks.c   which block sizes, what each would cost, which is best
 * tune_used.c     the blocks that a traced job had, and what they cost
 * tune_names.c    what lies where in tensors;  tune_params.c  what each part costs
 * tune_measure.c  --local, --aggregators: the operations for real
 * tune_print.c    table, curve and, by tune_reasons.c, why;  tune_json.c  the same for programs
 * tune_plot.c     the same as a picture
 * tune_apply.c    --write, --apply
 * Operations come from source.h; bytes from predict.h.
 */
#ifndef CLIENT_CLI_TUNE_H
#define CLIENT_CLI_TUNE_H

#include <stdio.h>

#include "client/cli/cli.h"
#include "client/cli/tune/predict.h"
#include "client/cli/tune/source.h"
#include "client/winnow.h"

#define TUNE_BLOCKS_MAX 32
#define TUNE_PARAMS_MAX 4096
#define TUNE_NAME_BYTES 80
/*
 * Block sizes within this factor of the fastest count as equal, and then the larger one is better:
 * every block costs each worker and the aggregator some nanoseconds, whatever it holds.
 */
#define TUNE_NEAR 1.05

struct tune_settings {
	const char *operands[SOURCE_FILES_MAX];
	uint32_t operand_count;
	struct winnow_config comm; /* to measure; what it leaves open, tune_join() fills in */
	const char *names, *blocks_text, *plot, *write;
	bool json, apply;
	uint64_t world, local, rate, aggregator_rate, channels, mtu, ops, size, unit;
	uint64_t iters, warmup;
	struct pattern pattern;
	enum winnow_dtype dtype;
	uint32_t aggregators; /* 0: not said */
};

/* One block size. All but `predicted` are means of an operation. */
struct tune_row {
	uint32_t block;
	struct predict predicted;
	double time_s, d, united;
	double sent_bytes, received_bytes;
	double own_sent_bytes;                             /* of worker 0, which measures */
	double measured_s, counted_sent, counted_received; /* 0: not measured */
	uint64_t retransmits;
};

/* Operations of a traced job with the same block size. */
struct tune_share {
	uint32_t block;
	uint32_t tile_rows; /* not 0: a block is a tile, so many rows high */
	uint32_t operations;
	uint64_t bytes;
};

/* What a traced job did, of the operations that are looked at. */
struct tune_used {
	uint32_t share_count;
	struct tune_share
		shares[TUNE_BLOCKS_MAX]; /* by bytes, most first; of more sizes the first found */
	bool unknown; /* operations whose blocks the trace is too coarse for, or of too many sizes */
	bool parts;   /* tensors were cut at their rows */
	struct predict predicted; /* each operation with the block that it had */
};

/* A parameter, wherever it lies. */
struct tune_param {
	char name[TUNE_NAME_BYTES];
	char shape[40];
	uint64_t offset; /* in the last operation that holds it */
	uint64_t elems, row;
	uint64_t operations;
	/* At the best block size: */
	double d, united, sent_bytes; /* of a worker, an operation */
	/* As a tensor of its own, which begins with a block: */
	uint32_t own_block;        /* the best; 0: cannot be told */
	double own_sent, row_sent; /* bytes at that, and with block = row; 0: cannot be told */
	uint32_t tile_rows, tile_columns; /* of the best tile; */
	double tile_sent;                 /* bytes with it. 0: no matrix, or cannot be told */
};

/* Operation `op` holds parameter `param` from its element `offset` on. */
struct tune_place {
	uint32_t op, param;
	uint64_t offset;
};

struct tune {
	struct tune_settings *settings;
	struct source source;
	struct predict_net net;
	double ring_s; /* what a ring would take, an operation */
	uint32_t block_count, best, measured_best, predicted_best;
	struct tune_row rows[TUNE_BLOCKS_MAX];
	struct tune_used used; /* of a trace */
	uint32_t param_count;
	struct tune_param params[TUNE_PARAMS_MAX];
	uint32_t place_count;
	struct tune_place *places; /* by operation */
	char note[256];
};

/* ---- tune_blocks.c; each returns an exit status, and says what is wrong ---- */

int tune_blocks_choose(struct tune *tune);
int tune_predict(struct tune *tune);

/* Decides which is best: the largest of those that are nearly as fast as the fastest. */
void tune_judge(struct tune *tune);

/* Bitmaps of `bits` zeros for each worker, in one piece of memory. */
uint64_t **tune_bits_make(uint32_t world, uint64_t bits);

/* Those of all workers of an operation, likewise. NULL: an error that has been printed. */
uint64_t **tune_bits(const struct source *source, uint32_t op);

/* What is predicted of it; `bits` stay the caller's. */
struct predict_op tune_op(const struct source *source, uint32_t op, uint64_t *const *bits);

/* ---- tune_used.c ---- */

/* Operation `op` with the block that the job used. False: no job may have such a tensor. */
bool tune_used_add(struct tune *tune, uint32_t op, const struct predict_op *input);
void tune_used_sort(struct tune *tune);

/* Time of an operation on the average, as it was; 0: cannot be told. */
double tune_used_s(const struct tune *tune);

/* Has the job done as well as the best block size would? */
bool tune_used_enough(const struct tune *tune);

/* ---- tune_names.c, tune_params.c ---- */

/* --names, or what the trace's worker has written beside it; before blocks are chosen. */
int tune_names_read(struct tune *tune);
int tune_params_cost(struct tune *tune);

/* ---- tune_measure.c ---- */

/* tune_join - tensors, and the communicator, whose network is then tune->net; tune_leave() in any case. */
int tune_join(struct tune *tune, int argc, char **argv);
int tune_measure(struct tune *tune);
int tune_leave(const struct tune *tune, int status); /* see bench_local_stop() */

/* ---- output ---- */

void tune_print(const struct tune *tune);
int tune_json(const struct tune *tune);
int tune_plot(const struct tune *tune, const char *path);

/* Into a file of options; `done` says in the user's words that it is. */
int tune_write(const struct tune *tune, const char *path, const char *done);

/* "aggregators" or "ring": what attach(way="auto") is expected to choose. */
const char *tune_way(const struct tune *tune);

/* What the best block size is better for than its neighbours: lines. */
void tune_reasons(const struct tune *tune, FILE *out);

#endif /* CLIENT_CLI_TUNE_H */
