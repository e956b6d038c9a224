// SPDX-License-Identifier: BSD-3-Clause
/* comm_topk.c - winnow_topk(), which needs no communicator */

#include "bitmap/topk.h"
#include "client/comm/comm_state.h"

int winnow_topk(void *gradient, float *memory, uint64_t count, enum winnow_dtype dtype,
                const struct winnow_choice *choice, uint64_t *taken)
{
	const struct topk topk = {.chunk = choice->chunk,
	                          .k = choice->k,
	                          .block = choice->block > 0 ? choice->block : 1,
	                          .decay = choice->decay};
	const char *wrong = topk_wrong(&topk);
	uint64_t sent;

	if (!topk_knows((enum dtype)dtype))
		return comm_fail(WINNOW_ERR_INVALID, "top-k is of f32, f16 or bf16");
	if (count > 0 && (gradient == NULL || memory == NULL))
		return comm_fail(WINNOW_ERR_INVALID, "gradient or memory is NULL");
	if (wrong != NULL)
		return comm_fail(WINNOW_ERR_INVALID, wrong);
	sent = topk_take(gradient, memory, count, (enum dtype)dtype, &topk);
	if (taken != NULL)
		*taken = sent;
	return WINNOW_OK;
}
