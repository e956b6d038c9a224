// SPDX-License-Identifier: BSD-3-Clause
/* pattern.c - see pattern.h */

#include "client/cli/pattern.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

	/*
	 * Neighbours' windows lie as far apart as possible; otherwise this is selection sampling.
	 */
	if (window && pattern->world > 1)
		unit = rest * rank / (pattern->world - 1);
	for (; wanted > 0; unit++) {
		double left = (double)(pattern->units - unit);

		if (!window &&
		    (double)(pattern_hash(seed, unit) >> 11) * 0x1p-53 * left >= (double)wanted)
			continue;
		wanted--;
		for (uint64_t bit = unit * each; bit < (unit + 1) * each && bit < total; bit++)
			bits[bit / 64] |= UINT64_C(1) << (bit % 64);
	}
}

static uint16_t half_of(int value) /* exact: |value| <= 2048 */
{
	uint32_t sign = value < 0 ? 0x8000 : 0, exponent = 15;
	uint32_t magnitude = (uint32_t)abs(value);

	if (magnitude == 0)
		return (uint16_t)sign;
	while (magnitude >= 2u << (exponent - 15))
		exponent++;
	return (uint16_t)(sign | exponent << 10 | ((magnitude << 10 >> (exponent - 15)) & 1023));
}

static uint16_t bfloat_of(int value)
{
	float single = (float)value;
	uint32_t bits;

	memcpy(&bits, &single, sizeof(bits));
	return (uint16_t)(bits >> 16);
}

void pattern_put(void *tensor, uint64_t index, enum dtype dtype, int value)
{
	switch (dtype) {
	case DTYPE_F32:
		((float *)tensor)[index] = (float)value;
		break;
	case DTYPE_F16:
		((uint16_t *)tensor)[index] = half_of(value);
		break;
	case DTYPE_BF16:
		((uint16_t *)tensor)[index] = bfloat_of(value);
		break;
	case DTYPE_F64:
		((double *)tensor)[index] = value;
		break;
	case DTYPE_I32:
		((int32_t *)tensor)[index] = value;
		break;
	case DTYPE_I64:
		((int64_t *)tensor)[index] = value;
		break;
	}
}
