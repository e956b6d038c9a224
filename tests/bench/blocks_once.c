// SPDX-License-Identifier: BSD-3-Clause
/* blocks_once.c - one function of one engine over some blocks, once: for tools that count instructions (instructions.sh) */

#include <stdlib.h>
#include <string.h>

#include "bitmap/bitmap.h"

enum { BLOCK_ELEMS = 256, BLOCKS_MAX = 256 };

static float data[BLOCKS_MAX * BLOCK_ELEMS], out[BLOCKS_MAX * BLOCK_ELEMS];
static uint64_t bits[BLOCKS_MAX / 64];

/* ENGINE FUNCTION BLOCKS; blocks of zeros for a scan, half of them non-zero otherwise */
int main(int argc, char *argv[])
{
	const struct bitmap_engine *engine = argc == 4 ? bitmap_named(argv[1]) : NULL;
	const uint64_t count = engine != NULL ? strtoull(argv[3], NULL, 10) * BLOCK_ELEMS : 0;
	struct bitmap_tensor tensor = {data, count, BLOCK_ELEMS, DTYPE_F32};
	struct bitmap_range range;

	if (count == 0 || count > BLOCKS_MAX * BLOCK_ELEMS)
		return 2;
	memset(bits, 0x55, sizeof(bits));
	if (strcmp(argv[2], "scan") == 0)
		engine->scan(&tensor, bits);
	else if (strcmp(argv[2], "scan_range") == 0)
		engine->scan_range(&tensor, bits, &range);
	else if (strcmp(argv[2], "pack") == 0)
		(void)engine->pack(&tensor, bits, out);
	else if (strcmp(argv[2], "reduce") == 0)
		engine->reduce(out, data, count, DTYPE_F32, REDUCE_SUM);
	else if (strcmp(argv[2], "fixed_encode") == 0)
		engine->fixed_encode(out, data, count, DTYPE_I32, 10);
	return 0;
}
