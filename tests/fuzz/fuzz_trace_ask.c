// SPDX-License-Identifier: BSD-3-Clause
/* fuzz_trace_ask.c - requests and answers of winnow trace: what is taken says the same when it is said again */

#include "client/trace/trace_ask.h"
#include "tests/fuzz/fuzz.h"

static void request(const char *text, size_t bytes)
{
	static char again[TRACE_ASK_BYTES];
	struct trace_request first, second;
	size_t length;

	if (!trace_request_take(text, bytes, &first))
		return;
	if (first.order != TRACE_START)
		return; /* the others have no more to say */
	length = trace_request_put(&first, again);
	assert(length > 0);
	assert(trace_request_take(again, length, &second));
	assert(second.order == first.order && second.limit_bytes == first.limit_bytes &&
	       second.fine == first.fine && strcmp(second.folder, first.folder) == 0);
}

static void answer(const char *text, size_t bytes)
{
	static char again[TRACE_ASK_BYTES];
	struct trace_answer first, second;
	size_t length;

	if (!trace_answer_take(text, bytes, &first))
		return;
	assert(first.rank < first.world);
	length = trace_answer_put(&first, again);
	assert(length > 0);
	assert(trace_answer_take(again, length, &second));
	assert(second.pid == first.pid && second.rank == first.rank &&
	       second.world == first.world && second.operations == first.operations &&
	       strcmp(second.job, first.job) == 0 && strcmp(second.path, first.path) == 0 &&
	       strcmp(second.error, first.error) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	char *text = exact_copy(data, bytes);

	request(text, bytes);
	answer(text, bytes);
	free(text);
	return 0;
}
