// SPDX-License-Identifier: BSD-3-Clause
/* pattern.c - see pattern.h */

#include "client/cli/pattern.h"

#include <math.h>
#include <string.h>

#include "bitmap/bitmap.h"

uint64_t pattern_hash(uint64_t a, uint64_t b)
{
	uint64_t z = a * UINT64_C(0x9e3779b97f4a7c15) + b + UINT64_C(0x632be59bd9b4e019);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

bool pattern_overlap_read(const char *text, enum pattern_overlap *out)
{
	static const char *const names[] = {"random", "all", "none"};

	for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(names[i], text) != 0)
			continue;
		*out = (enum pattern_overlap)i;
		return true;
	}
	return false;
}

void pattern_bits(const struct pattern *pattern, uint32_t rank, uint64_t each, uint64_t total,
                  uint64_t *bits)
{
	uint64_t wanted = (uint64_t)llround(pattern->density * (double)pattern->units);
	uint64_t seed = pattern_hash(pattern->seed, pattern->overlap == PATTERN_ALL ? 1 : rank + 1);
	uint64_t unit = 0, rest = pattern->units - wanted;
	bool window = pattern->overlap == PATTERN_NONE;

	/* Workers' windows lie as far apart as possible. The other patterns use selection sampling. */
	if (window && pattern->world > 1)
		unit = rest * rank / (pattern->world - 1);
	for (; wanted > 0; unit++) {
		double left = (double)(pattern->units - unit);

		if (!window &&
		    (double)(pattern_hash(seed, unit) >> 11) * 0x1p-53 * left >= (double)wanted)
			continue;
		wanted--;
		for (uint64_t bit = unit * each; bit < (unit + 1) * each && bit < total; bit++)
			bit_set(bits, bit);
	}
}

/* Looks `value` up in a table for the 16-bit type, which is computed once. */
static uint16_t half_of(enum dtype dtype, int value)
{
	static uint16_t known[2][513]; /* -256 to 256 */
	uint16_t *halves = known[dtype == DTYPE_BF16];
	float all[513];

	if (halves[0] == 0) {
		for (int i = 0; i < 513; i++)
			all[i] = (float)(i - 256);
		bitmap_best()->finish(halves, all, 513, dtype, REDUCE_SUM, 1);
	}
	return halves[value + 256];
}

void pattern_put(void *tensor, uint64_t index, enum dtype dtype, int value)
{
	void *to = (uint8_t *)tensor + index * dtype_bytes(dtype);

	if (dtype == DTYPE_F32)
		*(float *)to = (float)value;
	else if (dtype == DTYPE_F64)
		*(double *)to = value;
	else if (dtype == DTYPE_I32)
		*(int32_t *)to = value;
	else if (dtype == DTYPE_I64)
		*(int64_t *)to = value;
	else
		*(uint16_t *)to = half_of(dtype, value);
}
