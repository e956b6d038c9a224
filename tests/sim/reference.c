// SPDX-License-Identifier: BSD-3-Clause
/* reference.c - see reference.h */

#include "tests/sim/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { F32 = 1, F16, BF16, F64, I32, I64 };
enum { SUM = 1, AVG, MIN, MAX, PROD };

struct data_reference {
	struct op_spec spec;
	uint32_t world;
	double *value; /* floats */
	int64_t *integer;
	struct source *sources; /* [world] */
	const uint32_t *sites;  /* [world] */
	uint32_t site_count;    /* the highest of these */
	uint64_t *
		uncounted; /* [world + 1 + sites] by rank, of any, by site: the first element of it */
	uint64_t owned, united, upward;
};

static uint64_t hash(uint64_t a, uint64_t b)
{
	uint64_t z = a + b * UINT64_C(0x9e3779b97f4a7c15) + UINT64_C(0x632be59bd9b4e019);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

uint32_t data_elem_bytes(uint8_t dtype)
{
	static const uint8_t bytes[] = {
		[F32] = 4, [F16] = 2, [BF16] = 2, [F64] = 8, [I32] = 4, [I64] = 8};

	return bytes[dtype];
}

/* One rank's numbers. What those of a run share is worked out once, if they are asked for in order. */
struct source {
	const struct op_spec *spec;
	uint32_t rank;
	uint64_t elements, runs; /* seeds of its own */
	uint64_t first;          /* of the run that `nonzero` is about */
	bool nonzero;
};

static bool run_nonzero(const struct source *source, uint64_t run)
{
	const struct op_spec *spec = source->spec;
	uint64_t shared = hash(spec->seed, run);

	if (shared % 1000000 < spec->shared_ppm)
		return (shared >> 32) % 1000000 < spec->density_ppm;
	return hash(source->runs, run) % 1000000 < spec->density_ppm;
}

static void source_open(struct source *source, const struct op_spec *spec, uint32_t rank)
{
	source->spec = spec;
	source->rank = rank;
	source->elements = hash(spec->seed, ~(uint64_t)rank);
	source->runs = hash(spec->seed, rank + 1);
	source->first = 0;
	source->nonzero = run_nonzero(source, 0);
}

static bool nonzero_at(struct source *source, uint64_t index)
{
	uint32_t run = source->spec->run;

	if (index - source->first >= run) {
		source->first = index / run * run;
		source->nonzero = run_nonzero(source, index / run);
	}
	return source->nonzero;
}

/*
 * Values are small multiples of 1/8 (in other forms: of 2^-10), so that each is exact in
 * every type. Products are powers of two near 1, whatever the number of workers.
 */
static double number(struct source *source, uint64_t index)
{
	const struct op_spec *spec = source->spec;
	uint64_t h = hash(source->elements, index);
	double small = (double)(h % 255) - 127;

	if (!nonzero_at(source, index) || h >> 60 == 0)
		return (h & 256) ? -0.0 : 0.0;
	if (spec->nonfinite && (h >> 20) % 997 == 0)
		return (h & 512) ? NAN : (h & 1024) ? INFINITY : -INFINITY;
	if (spec->reduction == PROD)
		return (h & 2048 ? -1.0 : 1.0) * (source->rank < 4 ? (h & 4096 ? 2.0 : 0.5) : 1.0);
	return spec->form != 0 ? small / 1024 : small / 8;
}

static int64_t integer(struct source *source, uint64_t index)
{
	const struct op_spec *spec = source->spec;
	uint64_t h = hash(source->elements, index);

	if (!nonzero_at(source, index) || h >> 60 == 0)
		return 0;
	h = hash(h, 7);
	if (spec->reduction == PROD)
		h |= 1;
	/* All bits: sums wrap. */
	return spec->dtype == I32 ? (int32_t)h : (int64_t)h;
}

/* To nearest, ties to even: `digits` of a normal number's binary ones stay. */
static double rounded(double value, int digits)
{
	int exponent;
	double fraction = frexp(value, &exponent);

	if (value == 0 || !isfinite(value))
		return value;
	return ldexp(nearbyint(ldexp(fraction, digits)), exponent - digits);
}

__extension__ typedef _Float16 half; /* the compiler's own conversions */

static uint16_t to_f16(double value)
{
	const half number = (half)value;
	uint16_t bits;

	memcpy(&bits, &number, sizeof(bits));
	return bits;
}

static double from_f16(uint16_t bits)
{
	half number;

	memcpy(&number, &bits, sizeof(number));
	return (double)number;
}

void data_fill(const struct op_spec *spec, uint32_t rank, void *out)
{
	struct source source;

	source_open(&source, spec, rank);
	for (uint64_t i = 0; i < spec->count; i++) {
		float single;
		uint32_t bits;

		switch (spec->dtype) {
		case F32:
			((float *)out)[i] = (float)number(&source, i);
			break;
		case F16:
			((uint16_t *)out)[i] = to_f16(number(&source, i));
			break;
		case BF16:
			single = (float)number(&source, i);
			memcpy(&bits, &single, 4);
			((uint16_t *)out)[i] = (uint16_t)(bits >> 16);
			break;
		case F64:
			((double *)out)[i] = number(&source, i);
			break;
		case I32:
			((int32_t *)out)[i] = (int32_t)integer(&source, i);
			break;
		default:
			((int64_t *)out)[i] = integer(&source, i);
		}
	}
}

double data_value(uint8_t dtype, const void *values, uint64_t index)
{
	uint32_t bits;
	float single;

	switch (dtype) {
	case F32:
		return (double)((const float *)values)[index];
	case F16:
		return from_f16(((const uint16_t *)values)[index]);
	case BF16:
		bits = (uint32_t)((const uint16_t *)values)[index] << 16;
		memcpy(&single, &bits, 4);
		return (double)single;
	case F64:
		return ((const double *)values)[index];
	case I32:
		return ((const int32_t *)values)[index];
	default:
		return (double)((const int64_t *)values)[index];
	}
}

static double fold_float(uint8_t reduction, double a, double b)
{
	if (reduction == PROD)
		return a * b;
	if (reduction == SUM || reduction == AVG)
		return a + b;
	if (isnan(a) || isnan(b))
		return NAN;
	return reduction == MIN ? (a < b ? a : b) : (a > b ? a : b);
}

static int64_t fold_integer(uint8_t reduction, int64_t a, int64_t b)
{
	switch (reduction) {
	case PROD:
		return (int64_t)((uint64_t)a * (uint64_t)b);
	case MIN:
		return a < b ? a : b;
	case MAX:
		return a > b ? a : b;
	default:
		return (int64_t)((uint64_t)a + (uint64_t)b);
	}
}

static const int digits[] = {[F32] = 24, [F16] = 11, [BF16] = 8, [F64] = 53};

/* What a site sends of its workers' sum, which it does not divide. */
static double passed_on(const struct op_spec *spec, double sum)
{
	return rounded(sum, digits[spec->form == BF16 ? BF16 : spec->dtype]);
}

/* In f32 if that is what sums are made in, and divided there; then once in the result's type. */
static double result_of(const struct data_reference *r, double sum)
{
	int sum_digits = r->spec.dtype == F64 ? 53 : 24;

	if (r->spec.reduction == AVG)
		sum = rounded(sum / r->world, sum_digits);
	return rounded(sum, digits[r->spec.form == BF16 ? BF16 : r->spec.dtype]);
}

static void block_count(struct data_reference *r, uint32_t who, uint64_t element, uint64_t *count)
{
	if (element < r->uncounted[who])
		return;
	r->uncounted[who] = (element / r->spec.block + 1) * r->spec.block;
	(*count)++;
}

static void blocks_count(struct data_reference *r, uint32_t rank, uint64_t element)
{
	const uint32_t site = r->sites[rank];
	const uint64_t owned = r->owned;

	block_count(r, rank, element, &r->owned);
	block_count(r, r->world, element, &r->united);
	if (site > 0)
		block_count(r, r->world + site, element, &r->upward);
	else
		r->upward += r->owned - owned;
}

/* The sum so far, if there is one, with another number. */
struct partial {
	bool any;
	double value;
};

static void partial_add(struct partial *partial, uint8_t reduction, double value)
{
	partial->value = partial->any ? fold_float(reduction, partial->value, value) : value;
	partial->any = true;
}

/* The workers that have no site, and what each site passes on. */
static double element_float(struct data_reference *r, uint64_t i)
{
	const struct op_spec *spec = &r->spec;
	struct partial all[DATA_SITES_MAX + 1];

	for (uint32_t site = 0; site <= r->site_count; site++)
		all[site] = (struct partial){0};
	for (uint32_t rank = 0; rank < r->world; rank++) {
		double x = number(&r->sources[rank], i);

		partial_add(&all[r->sites[rank]], spec->reduction, x);
		if (x != 0)
			blocks_count(r, rank, i);
	}
	for (uint32_t site = 1; site <= r->site_count; site++)
		if (all[site].any)
			partial_add(&all[0], spec->reduction, passed_on(spec, all[site].value));
	return result_of(r, all[0].value);
}

static int64_t element_integer(struct data_reference *r, uint64_t i)
{
	const struct op_spec *spec = &r->spec;
	int64_t whole = 0;

	for (uint32_t rank = 0; rank < r->world; rank++) {
		int64_t x = integer(&r->sources[rank], i);

		whole = rank == 0 ? x : fold_integer(spec->reduction, whole, x);
		if (x != 0)
			blocks_count(r, rank, i);
	}
	whole = spec->dtype == I32 ? (int32_t)whole : whole;
	return spec->reduction == AVG ? whole / (int64_t)r->world : whole;
}

struct data_reference *data_reference_make(const struct op_spec *spec, uint32_t world,
                                           const uint32_t *sites)
{
	struct data_reference *r = calloc(1, sizeof(*r));
	size_t room = spec->count > 0 ? spec->count : 1;

	r->spec = *spec;
	r->world = world;
	r->sites = sites;
	for (uint32_t rank = 0; rank < world; rank++)
		r->site_count = sites[rank] > r->site_count ? sites[rank] : r->site_count;
	r->uncounted = calloc(world + 1 + DATA_SITES_MAX, sizeof(*r->uncounted));
	r->sources = calloc(world, sizeof(*r->sources));
	for (uint32_t rank = 0; rank < world && spec->count > 0; rank++)
		source_open(&r->sources[rank], &r->spec, rank);
	if (spec->dtype >= I32)
		r->integer = calloc(room, sizeof(*r->integer));
	else
		r->value = calloc(room, sizeof(*r->value));
	for (uint64_t i = 0; i < spec->count && r->integer != NULL; i++)
		r->integer[i] = element_integer(r, i);
	for (uint64_t i = 0; i < spec->count && r->value != NULL; i++)
		r->value[i] = element_float(r, i);
	return r;
}

void data_reference_free(struct data_reference *reference)
{
	free(reference->integer);
	free(reference->value);
	free(reference->uncounted);
	free(reference->sources);
	free(reference);
}

uint64_t data_blocks_owned(const struct data_reference *reference)
{
	return reference->owned;
}

uint64_t data_blocks_union(const struct data_reference *reference)
{
	return reference->united;
}

uint64_t data_blocks_upward(const struct data_reference *reference)
{
	return reference->upward;
}

double data_reference_at(const struct data_reference *reference, uint64_t index)
{
	return reference->integer != NULL ? (double)reference->integer[index]
	                                  : reference->value[index];
}

/* What numbers of 16 and 8 bits may be off by (TUNING.md); number() has no larger ones. */
static double bound_of(const struct data_reference *r)
{
	double largest = 127.0 / 1024, count = r->spec.reduction == AVG ? 1 : r->world;

	return r->spec.form == 7   ? ldexp(count * largest, -13)
	       : r->spec.form == 8 ? ldexp(count * largest, -5)
	                           : 0;
}

/* Is result[at] what element i must be? */
static bool right(const struct data_reference *r, const void *result, uint64_t at, uint64_t i)
{
	double got;

	if (r->spec.dtype == I32)
		return ((const int32_t *)result)[at] == (int32_t)r->integer[i];
	if (r->spec.dtype == I64)
		return ((const int64_t *)result)[at] == r->integer[i];
	got = data_value(r->spec.dtype, result, at);
	return isnan(r->value[i]) ? isnan(got)
	                          : got == r->value[i] || fabs(got - r->value[i]) <= bound_of(r);
}

uint64_t data_check(const struct data_reference *reference, const void *result, uint64_t first,
                    uint64_t count)
{
	uint64_t at = 0;

	while (at < count && right(reference, result, at, first + at))
		at++;
	return first + at;
}
