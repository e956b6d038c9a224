// SPDX-License-Identifier: BSD-3-Clause
/* test_sum.c - every engine of sum.h against RFC 1071's sum, byte by byte */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "aggregator/net/dpdk/frame.h"
#include "aggregator/net/dpdk/sum.h"

#define BYTES 70000

/* The words read most significant byte first, as the RFC has them; then as memory holds them. */
static uint16_t reference(const uint8_t *data, size_t size)
{
	uint32_t sum = 0;

	for (size_t i = 0; i < size; i++) {
		sum += i % 2 == 0 ? (uint32_t)data[i] << 8 : data[i];
		sum = (sum & 0xffff) + (sum >> 16);
	}
	return (uint16_t)(sum << 8 | sum >> 8);
}

static void compare(const struct sum_engine *engine, const uint8_t *data, size_t size)
{
	uint16_t want = reference(data, size), got = frame_fold(engine->sum(data, size));

	if (want != got)
		fail_msg("%s: %zu bytes: %04x, not %04x", engine->name, size, got, want);
}

static void each_engine(void **state)
{
	uint8_t *data = malloc(BYTES);

	(void)state;
	srand(7);
	for (size_t i = 0; i < BYTES; i++)
		data[i] = (uint8_t)rand();
	for (uint32_t e = 0; sum_engines[e] != NULL; e++) {
		if (!sum_engines[e]->usable())
			continue;
		for (size_t size = 0; size < 300; size++)
			for (size_t at = 0; at < 9; at++)
				compare(sum_engines[e], data + at, size);
		compare(sum_engines[e], data + 2, 1480);
		compare(sum_engines[e], data + 1, 65507);
	}
	free(data);
}

/* No carry is lost where all words are as large as they can be. */
static void carries(void **state)
{
	uint8_t *data = malloc(BYTES);

	(void)state;
	memset(data, 0xff, BYTES);
	for (uint32_t e = 0; sum_engines[e] != NULL; e++)
		for (size_t size = 65530; sum_engines[e]->usable() && size < 65536; size++)
			compare(sum_engines[e], data, size);
	free(data);
}

static void the_best_is_usable(void **state)
{
	const uint8_t data[] = {1, 2, 3, 4, 5};

	(void)state;
	assert_int_equal(frame_fold(sum_best()(data, sizeof(data))), reference(data, sizeof(data)));
	assert_int_equal(frame_fold(frame_sum(data, sizeof(data))), reference(data, sizeof(data)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_engine),
		cmocka_unit_test(carries),
		cmocka_unit_test(the_best_is_usable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
