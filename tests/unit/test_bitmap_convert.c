// SPDX-License-Identifier: BSD-3-Clause
/*
 * test_bitmap_convert.c - load, finish and fixed point of every engine against double precision
 *
 * Rounding is done here by scaling a double and nearbyint(), which rounds to even;
 * every 16-bit float is loaded, and f32 values around every 16-bit one are rounded.
 */

#include "tests/unit/test_bitmap.h"

#define COUNT_MAX 1100
#define ROUNDS 1500

static struct arena src_arena, acc_arena, dst_arena;

/* What becomes of a NaN when it is widened or narrowed: quiet, with the upper payload bits. */
static uint64_t plain_nan(uint64_t nan, enum dtype from, enum dtype to)
{
	const unsigned from_m = mantissa_bits(from), to_m = mantissa_bits(to);
	const uint64_t payload = nan & ((UINT64_C(1) << from_m) - 1);
	const uint64_t sign = nan >> (dtype_bytes(from) * 8 - 1);
	const uint64_t exponent = ((UINT64_C(1) << (dtype_bytes(to) * 8 - 1)) - 1) >> to_m << to_m;

	return sign << (dtype_bytes(to) * 8 - 1) | exponent | UINT64_C(1) << (to_m - 1) |
	       (from_m > to_m ? payload >> (from_m - to_m) : payload << (to_m - from_m));
}

/* The nearest element of a 16-bit type; x is not a NaN. */
static uint64_t plain_narrow(double x, enum dtype dtype)
{
	const int m = (int)mantissa_bits(dtype);
	const int bias = dtype == DTYPE_F16 ? 15 : 127;
	const uint64_t sign = signbit(x) ? 0x8000 : 0;
	int exponent; /* of the lowest bit that stays */
	double units;

	x = fabs(x);
	if (x == 0)
		return sign;
	frexp(isinf(x) ? 1e300 : x, &exponent);
	exponent -= m + 1;
	if (exponent < 1 - bias - m)
		exponent = 1 - bias - m;
	units = nearbyint(ldexp(x, -exponent));
	/* The mantissa's leading bit, and its carry, add to the exponent field: 2^m units a step. */
	units += ldexp(exponent + bias + m - 1, m);
	if (units > ldexp(2 * bias + 1, m))
		units = ldexp(2 * bias + 1, m);
	return sign | (uint64_t)units;
}

TEST(load_each_half)
{
	const enum dtype dtypes[] = {DTYPE_F16, DTYPE_BF16};
	const struct bitmap_engine *engine;
	static uint16_t halves[65536];
	static float wide[65536];

	for (unsigned i = 0; i < 65536; i++)
		halves[i] = (uint16_t)i;
	for (size_t e = 0; (engine = usable_engine(e)) != NULL; e++)
		for (unsigned d = 0; d < 2; d++) {
			engine->load(wide, halves, 65536, dtypes[d]);
			for (unsigned i = 0; i < 65536; i++) {
				double want = plain_value(i, dtypes[d]);
				uint64_t bits = fetch_element(&wide[i], DTYPE_F32);

				if (!isnan(want))
					assert_true(wide[i] == want && bits >> 31 == i >> 15);
				else if (dtypes[d] == DTYPE_F16)
					assert_int_equal(bits, plain_nan(i, DTYPE_F16, DTYPE_F32));
				else
					assert_int_equal(bits, i << 16);
			}
		}
}

/* load() at every address, of every length, for every type: the rest of its contract. */
TEST(load_anywhere)
{
	const struct bitmap_engine *engine;

	for (unsigned round = 0; round < ROUNDS; round++) {
		enum dtype dtype = (enum dtype)(1 + round % DTYPE_COUNT);
		const size_t size = dtype_bytes(dtype), acc_size = size == 2 ? 4 : size;
		const uint64_t count = random_below(round % 2 ? 80 : COUNT_MAX);
		unsigned char *src = arena_place(&src_arena, count * size, 1);

		for (uint64_t i = 0; i < count; i++)
			store_element(src + i * size, dtype, random_element(dtype));
		arena_protect(&src_arena, PROT_READ);
		for (size_t e = 0; (engine = usable_engine(e)) != NULL; e++) {
			unsigned char *acc = arena_place(&acc_arena, count * acc_size, acc_size);

			engine->load(acc, src, count, dtype);
			arena_check(&acc_arena, acc, count * acc_size, engine->name);
			if (size != 2)
				assert_memory_equal(acc, src, count * size);
			for (uint64_t i = 0; i < count && size == 2; i++) {
				double want = plain_value(fetch_element(src + 2 * i, dtype), dtype);
				float got;

				memcpy(&got, acc + 4 * i, 4);
				assert_true(got == want || (isnan(got) && isnan(want)));
			}
		}
		arena_protect(&src_arena, PROT_READ | PROT_WRITE);
	}
}

/* What finish() makes of one accumulator. */
static uint64_t plain_finish(const void *acc, enum dtype dtype, uint32_t divisor)
{
	const enum dtype wide = dtype_bytes(dtype) == 2 ? DTYPE_F32 : dtype;
	const uint64_t element = fetch_element(acc, wide);
	double value;
	float f32;

	if (dtype == DTYPE_I32 || dtype == DTYPE_I64) {
		int64_t integer =
			dtype == DTYPE_I32 ? (int32_t)(uint32_t)element : (int64_t)element;
		uint64_t magnitude = integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer;

		magnitude /= divisor;
		return integer < 0 ? 0 - magnitude : magnitude;
	}
	value = plain_value(element, wide);
	if (divisor > 1)
		value /= wide == DTYPE_F32 ? (double)(float)divisor : divisor;
	if (isnan(value))
		return wide == dtype ? element : plain_nan(element, DTYPE_F32, dtype);
	f32 = (float)value;
	if (dtype == DTYPE_F32)
		return fetch_element(&f32, DTYPE_F32);
	if (dtype == DTYPE_F64)
		return fetch_element(&value, DTYPE_F64);
	return plain_narrow(wide == DTYPE_F32 ? (double)f32 : value, dtype);
}

static bool same_element(uint64_t a, uint64_t b, enum dtype dtype, bool payload_counts)
{
	const uint64_t mask = UINT64_MAX >> (64 - 8 * dtype_bytes(dtype));

	if (((a ^ b) & mask) == 0)
		return true;
	return !payload_counts && dtype_is_float(dtype) && isnan(plain_value(a & mask, dtype)) &&
	       isnan(plain_value(b & mask, dtype));
}

static void check_finish(const struct bitmap_engine *engine, const unsigned char *dst,
                         const unsigned char *acc, uint64_t count, enum dtype dtype,
                         uint32_t divisor)
{
	const size_t size = dtype_bytes(dtype), acc_size = size == 2 ? 4 : size;

	for (uint64_t i = 0; i < count; i++) {
		uint64_t want = plain_finish(acc + i * acc_size, dtype, divisor);
		uint64_t got = fetch_element(dst + i * size, dtype);

		/* A division makes a NaN quiet; only conversions promise more. */
		if (!same_element(got, want, dtype, divisor == 1))
			fail_msg("%s finish %s / %u: %#llx became %#llx, not %#llx", engine->name,
			         dtype_name(dtype), divisor,
			         (unsigned long long)fetch_element(
					 acc + i * acc_size, acc_size == 4 ? DTYPE_I32 : DTYPE_I64),
			         (unsigned long long)got, (unsigned long long)want);
	}
}

/* f32 values at, between and around all 16-bit ones: the upper half counts up, the lower is below. */
TEST(finish_each_half)
{
	static const uint16_t lower[] = {0,      1,      0x0fff, 0x1000, 0x1001, 0x1fff,
	                                 0x2000, 0x2fff, 0x3000, 0x3001, 0x7fff, 0x8000,
	                                 0x8001, 0xafff, 0xd000, 0xffff};
	enum { LOWER_COUNT = sizeof(lower) / sizeof(lower[0]) };
	static float wide[65536];
	static uint16_t halves[65536];
	const struct bitmap_engine *engine;

	for (unsigned l = 0; l < LOWER_COUNT; l++) {
		for (uint32_t i = 0; i < 65536; i++)
			store_element(&wide[i], DTYPE_F32, i << 16 | lower[l]);
		for (size_t e = 0; (engine = usable_engine(e)) != NULL; e++) {
			engine->finish(halves, wide, 65536, DTYPE_F16, REDUCE_SUM, 1);
			check_finish(engine, (unsigned char *)halves, (unsigned char *)wide, 65536,
			             DTYPE_F16, 1);
			engine->finish(halves, wide, 65536, DTYPE_BF16, REDUCE_MAX, 5);
			check_finish(engine, (unsigned char *)halves, (unsigned char *)wide, 65536,
			             DTYPE_BF16, 1);
		}
	}
}

TEST(finish)
{
	static unsigned char before[COUNT_MAX * DTYPE_BYTES_MAX];
	const struct bitmap_engine *engine;

	for (unsigned round = 0; round < ROUNDS; round++) {
		enum dtype dtype = (enum dtype)(1 + round % DTYPE_COUNT);
		enum reduction op = (enum reduction)(1 + random_below(REDUCE_COUNT));
		const size_t size = dtype_bytes(dtype), acc_size = size == 2 ? 4 : size;
		const enum dtype wide = size == 2 ? DTYPE_F32 : dtype;
		const uint64_t count = random_below(round % 2 ? 80 : COUNT_MAX);
		const uint32_t random = (uint32_t)(random_bits() >> (32 + random_below(32)));
		const uint32_t workers = random == 0 ? 1 : random;
		const uint32_t divisor = op == REDUCE_AVG ? workers : 1;

		for (uint64_t i = 0; i < count; i++)
			store_element(before + i * acc_size, wide, random_element(wide));
		for (size_t e = 0; (engine = usable_engine(e)) != NULL; e++) {
			unsigned char *acc = arena_place(&acc_arena, count * acc_size, acc_size);
			unsigned char *dst = arena_place(&dst_arena, count * size, 1);

			memcpy(acc, before, count * acc_size);
			arena_protect(&acc_arena, PROT_READ);
			engine->finish(dst, acc, count, dtype, op, workers);
			arena_protect(&acc_arena, PROT_READ | PROT_WRITE);
			arena_check(&dst_arena, dst, count * size, engine->name);
			check_finish(engine, dst, before, count, dtype, divisor);
			engine->finish(acc, acc, count, dtype, op, workers);
			arena_check(&acc_arena, acc, count * acc_size, engine->name);
			check_finish(engine, acc, before, count, dtype, divisor);
		}
	}
}

/* A float x for which |x * 2^shift| is at most 2^30; often half-way between two integers. */
static float random_fixed(int shift)
{
	double target = ldexp((double)(random_bits() >> 11), -23); /* below 2^30 */
	float x;

	switch (random_below(8)) {
	case 0:
		target = 0x1p30;
		break;
	case 1:
		target = 0;
		break;
	case 2:
		target = (double)random_below(1 << 23) + 0.5;
		break;
	case 3:
		target = 0x1p-149; /* a subnormal where the shift is small */
		break;
	default:
		target = ldexp(target, -(int)random_below(34));
	}
	if (random_below(2))
		target = -target;
	x = (float)ldexp(target, -shift);
	return isfinite(x) ? x : 0;
}

static enum dtype fixed_dtype(unsigned round)
{
	static const enum dtype dtypes[] = {DTYPE_I32, DTYPE_I16, DTYPE_I8};

	return dtypes[round / 2 % 3];
}

static int32_t fixed_number(const unsigned char *from, enum dtype dtype)
{
	int32_t word;
	int16_t half;

	if (dtype == DTYPE_I8)
		return (int8_t)*from;
	if (dtype == DTYPE_I32) {
		memcpy(&word, from, 4);
		return word;
	}
	memcpy(&half, from, 2);
	return half;
}

TEST(fixed_encode)
{
	const struct bitmap_engine *engine;

	for (unsigned round = 0; round < ROUNDS; round++) {
		const int shift = (int)random_below(401) - 200;
		const uint64_t count = random_below(round % 2 ? 80 : COUNT_MAX);
		const enum dtype dtype = fixed_dtype(round);
		const uint32_t bytes = dtype_bytes(dtype);
		const double limit = dtype == DTYPE_I8 ? 127 : dtype == DTYPE_I16 ? 32767 : 0x1p30;
		unsigned char *src = arena_place(&src_arena, count * 4, 1);
		unsigned char *dst;

		for (uint64_t i = 0; i < count; i++) {
			/* Some at the narrow type's limits, as PROTOCOL.md has them. */
			int up = dtype == DTYPE_I32 || random_below(4) == 0 ? 0
			         : dtype == DTYPE_I16                       ? 15
			                                                    : 23;
			float x = (float)ldexp((double)random_fixed(shift), -up);

			memcpy(src + i * 4, &x, 4);
		}
		arena_protect(&src_arena, PROT_READ);
		for (size_t e = 0; (engine = usable_engine(e)) != NULL; e++) {
			bool in_place = dtype == DTYPE_I32 && round % 2 == 0;

			dst = arena_place(&dst_arena, count * bytes, 1);
			if (in_place)
				memcpy(dst, src, count * 4);
			engine->fixed_encode(dst, in_place ? dst : src, count, dtype, shift);
			arena_check(&dst_arena, dst, count * bytes, engine->name);
			for (uint64_t i = 0; i < count; i++) {
				double x = plain_value(fetch_element(src + i * 4, DTYPE_F32),
				                       DTYPE_F32);
				double want = nearbyint(ldexp(x, shift));
				int32_t got = fixed_number(dst + i * bytes, dtype);

				if (got != (want > limit ? limit : want < -limit ? -limit : want))
					fail_msg("%s: %a * 2^%d became %d", engine->name, x, shift,
					         got);
			}
		}
		arena_protect(&src_arena, PROT_READ | PROT_WRITE);
	}
}

/* Sums of narrow integers, in blocks or whole, and what their frames' results are. */
TEST(fixed_sums)
{
	enum { ELEMS = 777, WORKERS_MAX = 256 };
	static int16_t halves[ELEMS];
	static int8_t bytes[ELEMS];
	static int32_t sums[ELEMS], want[ELEMS];
	const struct bitmap_engine *engine;

	for (unsigned round = 0; round < 60; round++) {
		const enum dtype dtype = round % 2 ? DTYPE_I16 : DTYPE_I8;
		const int limit = round % 2 ? 32767 : 127, extreme = round % 3 == 0;
		const uint32_t workers = 1 + (uint32_t)random_below(round < 4 ? 3 : WORKERS_MAX);
		const double by = ldexp(1, dtype_headroom(workers));

		for (size_t e = 0; (engine = usable_engine(e)) != NULL; e++) {
			const void *src = round % 2 ? (void *)halves : (void *)bytes;

			memset(want, 0, sizeof(want));
			for (uint32_t w = 0; w < workers; w++) {
				for (int i = 0; i < ELEMS; i++) {
					int x = (int)random_below(2 * (unsigned)limit + 1) - limit;

					x = extreme ? (i % 2 ? limit : -limit) : x;
					halves[i] = (int16_t)x;
					bytes[i] = (int8_t)x;
					want[i] += x;
				}
				if (w == 0 && round % 4 < 2)
					engine->load(sums, src, ELEMS, dtype);
				else if (w == 0)
					engine->neutral(sums, ELEMS, dtype, REDUCE_SUM);
				if (w > 0 || round % 4 >= 2)
					engine->reduce(sums, src, ELEMS, dtype, REDUCE_SUM);
			}
			engine->finish(sums, sums, ELEMS, dtype, REDUCE_SUM, workers);
			for (int i = 0; i < ELEMS; i++)
				assert_int_equal(
					fixed_number((unsigned char *)sums +
				                             (size_t)i * dtype_bytes(dtype),
				                     dtype),
					(int32_t)nearbyint(want[i] / by));
		}
	}
}

TEST(fixed_decode)
{
	const struct bitmap_engine *engine;

	for (unsigned round = 0; round < ROUNDS; round++) {
		const int shift = (int)random_below(401) - 200;
		const uint32_t divisor = random_below(2) ? 1 : 1 + (uint32_t)random_below(1000);
		const uint64_t count = random_below(round % 2 ? 80 : COUNT_MAX);
		const enum dtype dtype = fixed_dtype(round);
		const uint32_t bytes = dtype_bytes(dtype);
		unsigned char *src = arena_place(&src_arena, count * bytes, 1);
		unsigned char *dst;

		for (uint64_t i = 0; i < count; i++) {
			uint64_t bits = random_element(DTYPE_I32);

			memcpy(src + i * bytes, &bits, bytes);
		}
		arena_protect(&src_arena, PROT_READ);
		for (size_t e = 0; (engine = usable_engine(e)) != NULL; e++) {
			bool in_place = dtype == DTYPE_I32 && round % 2 == 0;

			dst = arena_place(&dst_arena, count * 4, 1);
			if (in_place)
				memcpy(dst, src, count * 4);
			engine->fixed_decode(dst, in_place ? dst : src, count, dtype, shift,
			                     divisor);
			arena_check(&dst_arena, dst, count * 4, engine->name);
			for (uint64_t i = 0; i < count; i++) {
				int32_t x = fixed_number(src + i * bytes, dtype);
				float scaled = (float)ldexp((double)(float)x, -shift);
				float want = (float)((double)scaled / divisor);

				if (memcmp(dst + i * 4, &want, 4) != 0)
					fail_msg("%s: %d * 2^%d / %u is not %a", engine->name, x,
					         -shift, divisor, (double)want);
			}
		}
		arena_protect(&src_arena, PROT_READ | PROT_WRITE);
	}
}

static int arenas_open(void **state)
{
	src_arena = arena_open(COUNT_MAX * DTYPE_BYTES_MAX);
	acc_arena = arena_open(COUNT_MAX * DTYPE_BYTES_MAX);
	dst_arena = arena_open(COUNT_MAX * DTYPE_BYTES_MAX);
	return 0;
}

int main(void)
{
	return unit_run(arenas_open, NULL);
}
