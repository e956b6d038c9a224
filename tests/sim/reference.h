/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reference.h - inputs from a seed, and what their reduction must be
 *
 * The reference is a plain loop over plain arrays in double or 64-bit integers. It shares no code
 * with bitmap/, the client or the aggregator, and knows no frames. Inputs are such that every sum is
 * exact in any order, and what is rounded is rounded where PROTOCOL.md says so: there is one right
 * result, to the bit, but for a zero's sign and what a NaN carries. Of 16-bit numbers, each site's sum is rounded.
 */
#ifndef TESTS_SIM_REFERENCE_H
#define TESTS_SIM_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

struct op_spec {
	uint64_t seed;
	uint64_t tag;
	uint32_t priority;
	uint64_t count;
	uint32_t block;
	uint8_t dtype;        /* as in winnow.h */
	uint8_t reduction;    /* as in winnow.h */
	uint8_t form;         /* enum wire_form */
	uint64_t layout;      /* what the tensor's parts are made of: world_rows.c; 0: it is flat */
	bool scatter;         /* each worker gets its share of the result: as many divide count */
	bool nonfinite;       /* some values are NaN or infinite */
	uint32_t run;         /* elements that are zero or not together */
	uint32_t density_ppm; /* share of runs that are not zero */
	uint32_t shared_ppm;  /* share of runs that all workers have in common */
};

uint32_t data_elem_bytes(uint8_t dtype);

/* Worker `rank`'s input: [count] elements into `out`. */
void data_fill(const struct op_spec *spec, uint32_t rank, void *out);

#define DATA_SITES_MAX 32

/* What all workers' inputs reduce to. sites[world]: each worker's site, from 1; 0: none. */
struct data_reference;
struct data_reference *data_reference_make(const struct op_spec *spec, uint32_t world,
                                           const uint32_t *sites);
void data_reference_free(struct data_reference *reference);

/*
 * Index of the first element that is wrong of [first, first + count), or first + count. `result` has these
 * elements alone.
 */
uint64_t data_check(const struct data_reference *reference, const void *result, uint64_t first,
                    uint64_t count);

/* Blocks that have a non-zero element: of each worker, added up; of any; and of each site and each worker without. */
uint64_t data_blocks_owned(const struct data_reference *reference);
uint64_t data_blocks_union(const struct data_reference *reference);
uint64_t data_blocks_upward(const struct data_reference *reference);

/* The reference's element, for messages. */
double data_reference_at(const struct data_reference *reference, uint64_t index);
double data_value(uint8_t dtype, const void *values, uint64_t index);

#endif /* TESTS_SIM_REFERENCE_H */
