/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_machine.h - what the tests of a channel and of a stream share: one operation, and what is dropped
 *
 * With the smallest payload, blocks of 32 f32 travel four to a frame; 100 are too many for eager.
 */
#ifndef TESTS_UNIT_TEST_MACHINE_H
#define TESTS_UNIT_TEST_MACHINE_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bitmap/coded.h"
#include "ebpf/packet.h"
#include "tests/check/check.h"
#include "tests/flatten.h"
#include "tests/unit/test_random.h"
#include "tests/unit/unit.h"

#define BENCH_TEST(name, open) TEST_ON(name, struct bench *, b, open, bench_close(b))
#define CHANNEL_ID 0x0102
#define GROUP_TOKEN UINT64_C(0x6702)
#define TAG UINT64_C(0x1122334455667788)
#define BLOCK_ELEMS 32
#define BLOCK_BYTES 128
#define FRAME_BLOCKS 4
#define FRAME_BYTES (FRAME_BLOCKS * BLOCK_BYTES)
#define BLOCKS 100
#define FRAMES 25

/* Is this the set that has come, of a segment of `count` blocks? */
static inline void expect_set(const struct packet_set *set, const void *want, uint32_t count)
{
	uint64_t found[SEGMENT_WORDS];

	assert_int_equal(bits_read(set->data, set->bytes, found, count), 0);
	assert_memory_equal(found, want, (size_t)(count + 63) / 64 * 8);
}

/* The one drop since `before` was for this reason; WIRE_DROP_NONE: there was none. */
static inline void drops_expect(uint64_t *before, const uint64_t *drops, enum wire_drop reason,
                                const char *file, int line)
{
	for (unsigned i = 0; i < WIRE_DROP_COUNT; i++) {
		uint64_t news = drops[i] - before[i];

		if (news != (i == reason && reason != WIRE_DROP_NONE)) {
			print_error("%s: %u times, expected %s\n", drop_name((enum wire_drop)i),
			            (unsigned)news, drop_name(reason));
			_fail(file, line);
		}
		before[i] = drops[i];
	}
}

#endif /* TESTS_UNIT_TEST_MACHINE_H */
