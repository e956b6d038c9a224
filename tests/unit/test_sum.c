// SPDX-License-Identifier: BSD-3-Clause
/* test_sum.c - frame_sum() on any CPU and on this one against RFC 1071's sum, byte by byte */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/dpdk/frame.h"
#include "tests/unit/unit.h"

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

static void compare(const uint8_t *data, size_t size)
{
	uint16_t want = reference(data, size);

	if (want != frame_fold(frame_sum(data, size)))
		fail_msg("%zu bytes: %04x, not %04x", size, frame_fold(frame_sum(data, size)),
		         want);
	if (want != frame_fold(frame_sum_any(data, size)))
		fail_msg("any CPU, %zu bytes: not %04x", size, want);
}

TEST(sizes_and_places)
{
	uint8_t *data = malloc(BYTES);

	srand(7);
	for (size_t i = 0; i < BYTES; i++)
		data[i] = (uint8_t)rand();
	for (size_t size = 0; size < 300; size++)
		for (size_t at = 0; at < 9; at++)
			compare(data + at, size);
	compare(data + 2, 1480);
	compare(data + 1, 65507);
	free(data);
}

/* No carry is lost where all words are as large as they can be. */
TEST(carries)
{
	uint8_t *data = malloc(BYTES);

	memset(data, 0xff, BYTES);
	for (size_t size = 65530; size < 65536; size++)
		compare(data, size);
	free(data);
}
