// SPDX-License-Identifier: BSD-3-Clause
/* bitmap.c - the list of engines and the choice among them */

#include "bitmap/bitmap.h"

#include <stdlib.h>
#include <string.h>

#include "bitmap/bitmap_impl.h"

const struct bitmap_engine *const bitmap_engines[] = {
	&bitmap_scalar,
	&bitmap_avx2,
	&bitmap_avx512,
	NULL,
};

const struct bitmap_engine *bitmap_best(void)
{
	const char *wanted = getenv("WINNOW_ISA");
	const struct bitmap_engine *best = wanted != NULL ? bitmap_named(wanted) : NULL;

	if (best != NULL)
		return best;
	for (size_t i = 0; bitmap_engines[i] != NULL; i++)
		if (bitmap_engines[i]->usable())
			best = bitmap_engines[i];
	return best;
}

const struct bitmap_engine *bitmap_named(const char *name)
{
	for (size_t i = 0; bitmap_engines[i] != NULL; i++)
		if (strcmp(bitmap_engines[i]->name, name) == 0)
			return bitmap_engines[i]->usable() ? bitmap_engines[i] : NULL;
	return NULL;
}
