/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench_state.h - what the files of winnow bench share
 *
 * bench.c        options, the measured loop
 * bench_data.c   makes tensors with the wanted non-zero blocks, and checks results
 * bench_local.c  --local: aggregators and all workers as child processes
 * bench_print.c  tables
 * bench_json.c   the same as JSON
 */
#ifndef CLIENT_CLI_BENCH_STATE_H
#define CLIENT_CLI_BENCH_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/cli/pattern.h"
#include "client/winnow.h"

#define BENCH_LIST_MAX 64   /* The most sizes, and the most densities. */
#define BENCH_ROWS_MAX 256  /* The most rows: sizes times densities. */
#define BENCH_SITES_MAX 64  /* The most sites. */
#define BENCH_NAME_MAX 4000 /* The longest name of a bitmap, before a rank replaces its "%r". */

/* The table has a row for each size with each density. */
struct bench_rows {
	uint32_t size_count, density_count;
	uint64_t sizes[BENCH_LIST_MAX]; /* Bytes. */
	double densities[BENCH_LIST_MAX];
};

struct bench_settings {
	struct winnow_config comm;
	const char *config; /* A file of options. */
	struct {
		const char *sizes, *densities, *overlap;
	} text;
	bool check, json, in_place;
	struct {
		uint64_t from_bytes, to_bytes, factor;
	} sweep; /* No sweep if from_bytes is 0. */
	uint32_t local, sites;
	uint64_t iters, warmup, seed, rate, aggregator_rate;
	enum winnow_dtype dtype;
	enum winnow_op op;

	/* Computed from the texts and from what the aggregators offer. */
	bool auto_fixed32; /* AUTO stands for FIXED32. */
	enum pattern_overlap overlap;
	uint32_t aggregators;
	struct bench_rows rows;
};

/* This worker's sums over the measured operations. */
struct bench_sums {
	double time_us, cpu_us, sent_bytes, received_bytes;
	uint64_t retransmits, nacks;
	uint64_t sent_packets, received_packets;
	uint64_t sent_marked, received_marked, received_lost;
	uint64_t held_window_us, held_credit_us;
};

/* The results of a row, measured either in place or out of place. */
struct bench_times {
	double time_us_min, time_us_median, time_us_p99, time_us_max;
	struct bench_sums sums;
	uint64_t wrong; /* Wrong elements. */
};

/* A sweep measures out of place, then in place. Otherwise only one is measured, which --in-place chooses. */
#define BENCH_PLACES 2

/* One row of the table. */
struct bench_row {
	uint64_t bytes, count;
	double density;       /* The share of this worker's blocks that is non-zero. */
	double union_density; /* The share of blocks that is non-zero on any worker. */
	struct bench_times times[BENCH_PLACES];
	double bound_us;           /* 0 without --rate. */
	struct winnow_stats stats; /* The communicator's statistics after the row. */
};

static inline bool bench_sweeps(const struct bench_settings *settings)
{
	return settings->sweep.from_bytes != 0;
}

/* Wrong elements, in and out of place. */
static inline uint64_t bench_wrong(const struct bench_row *row)
{
	return row->times[0].wrong + row->times[1].wrong;
}

/* The algbw of nccl-tests in bytes/s, and its busbw: the load of each link of a ring. */
double bench_algbw(const struct bench_row *row, const struct bench_times *times);
double bench_busbw(const struct bench_settings *settings, const struct bench_row *row,
                   const struct bench_times *times);

/* ---- bench_data.c ---- */

struct bench_data {
	const struct bench_settings *settings;
	uint64_t count, block_count, block_elems;
	uint32_t elem_bytes;
	uint64_t words; /* Words of one worker's bitmap. */
	uint64_t *bits; /* [world][words] */
	void *tensor;   /* This worker's tensor. */
};

/* Makes a tensor with `density` of its blocks non-zero. Returns NULL after printing an error. */
struct bench_data *bench_data_make(const struct bench_settings *settings, uint64_t count,
                                   double density);
void bench_data_free(struct bench_data *data);

/* Computes all workers' tensors and returns how many elements of `result` are wrong. */
uint64_t bench_data_check(const struct bench_data *data, const void *result);

/* ---- bench_local.c ---- */

/*
 * Runs winnowd, its sites, and all workers as children. Workers run this command, argv[0], with its options and the key
 * of settings->comm. Returns the exit status.
 */
int bench_local(struct bench_settings *settings, int argc, char **argv);

/* ---- bench_print.c ---- */

extern const char *const bench_wires[]; /* The names of enum winnow_wire. */
void bench_print_head(const struct bench_settings *settings);
void bench_print_row(const struct bench_settings *settings, const struct bench_row *row);
void bench_print_foot(const struct bench_settings *settings, const struct bench_row rows[],
                      uint32_t count);

/* ---- bench_json.c ---- */

void bench_json(const struct bench_settings *settings, const struct bench_row rows[],
                uint32_t count);

#endif /* CLIENT_CLI_BENCH_STATE_H */
