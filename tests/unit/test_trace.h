/* SPDX-License-Identifier: BSD-3-Clause */
/* test_trace.h - the head of a trace, for the tests of traces */
#ifndef TESTS_UNIT_TEST_TRACE_H
#define TESTS_UNIT_TEST_TRACE_H

#include "client/trace/trace_format.h"

static inline struct trace_head a_head(uint32_t rank, uint64_t run)
{
	struct trace_head head = {
		.job = "job-a",
		.run = run,
		.started_s = 1000 + run,
		.rank = rank,
		.world = 2,
		.aggregators = 1,
		.channels = 3,
		.payload = 1472,
		.window = 256,
		.multicast = 1,
	};

	return head;
}

#endif /* TESTS_UNIT_TEST_TRACE_H */
