// SPDX-License-Identifier: BSD-3-Clause
/* test_trace_ask.c - what winnow trace and communicators say: there and back, and what is refused */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/trace/trace_ask.h"

static bool request_is(const char *text)
{
	struct trace_request request;

	return trace_request_take(text, strlen(text), &request);
}

static bool answer_is(const char *text)
{
	struct trace_answer answer;

	return trace_answer_take(text, strlen(text), &answer);
}

static void test_requests(void **state)
{
	struct trace_request request = {.order = TRACE_START,
	                                .folder = "/tmp/t \"1\"\n",
	                                .limit_bytes = UINT64_C(1) << 40,
	                                .fine = 65536},
			     back;
	char text[TRACE_ASK_BYTES];
	size_t bytes = trace_request_put(&request, text);

	(void)state;
	assert_true(bytes > 0 && trace_request_take(text, bytes, &back));
	assert_memory_equal(&request, &back, sizeof(back));
	for (size_t cut = 0; cut < bytes; cut++)
		assert_false(trace_request_take(text, cut, &back));
	request = (struct trace_request){.order = TRACE_STOP};
	bytes = trace_request_put(&request, text);
	assert_true(trace_request_take(text, bytes, &back) && back.order == TRACE_STOP);
	assert_true(request_is("{\"order\":\"show\"}"));
	assert_false(request_is("{\"order\":\"begin\"}"));
	assert_false(request_is("{\"order\":7}"));
	assert_false(request_is("[]"));
	assert_false(request_is("{\"order\":\"start\"}"));
	assert_false(request_is("{\"order\":\"start\",\"folder\":\"t\",\"limit\":9,\"block\":4}"));
	assert_true(request_is("{\"order\":\"start\",\"folder\":\"/t\",\"limit\":9,\"block\":4}"));
	assert_false(request_is("{\"order\":\"start\",\"folder\":\"/t\",\"limit\":0,\"block\":4}"));
	assert_false(
		request_is("{\"order\":\"start\",\"folder\":\"/t\",\"limit\":9,\"block\":65537}"));
	assert_false(
		request_is("{\"order\":\"start\",\"folder\":\"/t\",\"limit\":9,\"block\":-1}"));
	/* What is no text for JSON cannot be said. */
	snprintf(request.folder, sizeof(request.folder), "/\xff");
	assert_int_equal(trace_request_put(&request, text), 0);
}

static void test_answers(void **state)
{
	struct trace_answer answer = {.pid = 12,
	                              .rank = 3,
	                              .world = 4,
	                              .job = "job-a",
	                              .operations = 99,
	                              .path = "/t/x.trace",
	                              .error = "no"},
			    back;
	char text[TRACE_ASK_BYTES];
	size_t bytes = trace_answer_put(&answer, text);

	(void)state;
	assert_true(bytes > 0 && trace_answer_take(text, bytes, &back));
	assert_memory_equal(&answer, &back, sizeof(back));
	for (size_t cut = 0; cut < bytes; cut++)
		assert_false(trace_answer_take(text, cut, &back));
	memset(answer.path, 'p', sizeof(answer.path) - 1);
	memset(answer.error, 'e', sizeof(answer.error) - 1);
	bytes = trace_answer_put(&answer, text);
	assert_true(bytes > 0 && trace_answer_take(text, bytes, &back));
	assert_memory_equal(&answer, &back, sizeof(back));
	answer.rank = 4;
	assert_false(trace_answer_take(text, trace_answer_put(&answer, text), &back));
	answer.rank = 0;
	snprintf(answer.job, sizeof(answer.job), "a b");
	assert_false(trace_answer_take(text, trace_answer_put(&answer, text), &back));
	assert_false(answer_is("{}"));
	assert_false(answer_is("{\"pid\":1,\"rank\":0,\"world\":0}"));
}

static void test_addresses(void **state)
{
	struct sockaddr_un address;
	socklen_t bytes = trace_ask_address(4294967295u, 63, &address);

	(void)state;
	assert_int_equal(address.sun_path[0], 0);
	assert_string_equal(address.sun_path + 1, "winnow-trace.4294967295.63");
	assert_int_equal(bytes, offsetof(struct sockaddr_un, sun_path) + 1 + 26);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
