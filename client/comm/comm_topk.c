// SPDX-License-Identifier: BSD-3-Clause
/* comm_topk.c - winnow_topk(), which needs no communicator */

#include "bitmap/topk.h"
#include "client/comm/comm.h"

int winnow_topk(void *gradient, float *memory, uint64_t count, enum winnow_dtype dtype, uint64_t k,
                uint64_t chunk, float decay, uint64_t *taken)
{
	const struct topk topk = {.chunk = chunk, .k = k, .decay = decay};
	uint64_t sent;

	if (!topk_knows((enum dtype)dtype))
		return comm_fail(WINNOW_ERR_INVALID, "top-k is of f32, f16 or bf16");
	if (count > 0 && (gradient == NULL || memory == NULL))
		return comm_fail(WINNOW_ERR_INVALID, "gradient or memory is NULL");
	if (k == 0 || k > chunk)
		return comm_fail(WINNOW_ERR_INVALID, "k is not from 1 to chunk");
	if (!(decay >= 0 && decay <= 1))
		return comm_fail(WINNOW_ERR_INVALID, "decay is not from 0 to 1");
	sent = topk_take(gradient, memory, count, (enum dtype)dtype, &topk);
	if (taken != NULL)
		*taken = sent;
	return WINNOW_OK;
}
