// SPDX-License-Identifier: BSD-3-Clause
/* pattern.c - see pattern.h */

#include "client/cli/pattern.h"

#include <math.h>
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

	/* Windows of neighbours lie as far apart as they fit; else it is selection sampling. */
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
