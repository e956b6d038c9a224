// SPDX-License-Identifier: BSD-3-Clause
/* fuzz_npy.c - heads of .npy files; the first two bytes say how much data follows */

#include "client/cli/tune/npy.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct script script = {data, bytes};
	uint64_t data_bytes = script_u16(&script), product = 1;
	void *head = exact_copy(script.at, script.left);
	struct why why = {""};
	struct npy npy;

	if (npy_parse(head, script.left, script.left + data_bytes, &npy, &why) != 0) {
		assert(strlen(why.text) > 0 && strchr(why.text, '\n') == NULL);
	} else {
		assert(npy.dimensions <= NPY_DIMENSIONS_MAX);
		for (uint32_t i = 0; i < npy.dimensions; i++)
			product *= npy.shape[i];
		assert(product == npy.count);
		assert(npy.data_from <= script.left);
		assert(npy.count * dtype_bytes(npy.dtype) <=
		       script.left + data_bytes - npy.data_from);
	}
	free(head);
	return 0;
}
