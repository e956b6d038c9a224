// SPDX-License-Identifier: BSD-3-Clause
/* test_xdp_loader.c - xdp.c without a device: errors, and who gets which slots */

#include "tests/unit/test_xdp.h"

static void test_open_errors(void **state)
{
	struct xdp_config config = {.device = "no-such-device", .port = OUR_PORT, .slot_count = 1};
	struct xdp *xdp = NULL;
	char why[XDP_WHY_BYTES];

	(void)state;
	assert_int_equal(xdp_open(&config, &xdp, why), -ENODEV);
	assert_non_null(strstr(why, "no-such-device"));
	config.slot_count = 0;
	assert_int_equal(xdp_open(&config, &xdp, why), -EINVAL);
	config.slot_count = XDP_SLOTS_MAX + 1;
	assert_int_equal(xdp_open(&config, &xdp, why), -EINVAL);
	assert_null(xdp);
	xdp_close(NULL);
}

static void test_slot_ranges(void **state)
{
	struct world *world = *state; /* has slots 0 .. 63 of 96 */
	struct xdp *xdp = world->xdp;
	const struct fast_channel *channels = xdp_channels(xdp);
	int small, other;

	assert_int_equal(xdp_channel_open(xdp, 7, 0), -EINVAL);
	assert_int_equal(xdp_channel_open(xdp, 7, 24), -EINVAL);
	assert_int_equal(xdp_channel_open(xdp, 7, 2 * WIRE_WINDOW_MAX), -EINVAL);
	assert_int_equal(xdp_channel_open(xdp, 7, 64), -ENOSPC);
	assert_int_equal(xdp_channel_open(xdp, 7, 128), -ENOSPC);
	small = xdp_channel_open(xdp, 7, 16);
	other = xdp_channel_open(xdp, 8, 16);
	assert_int_equal(channels[small].first_slot, 64);
	assert_int_equal(channels[other].first_slot, 80);
	assert_int_equal(channels[other].window_mask, 15);
	assert_int_equal(channels[other].id, 8);
	assert_int_equal(xdp_settings(xdp)->known[8], FAST_KNOWN_FIRST + other);
	assert_int_equal(xdp_channel_open(xdp, 9, 1), -ENOSPC);

	xdp_slots(xdp)[64].state = FAST_DONE;
	xdp_channel_close(xdp, small);
	assert_int_equal(xdp_settings(xdp)->known[7], 0);
	small = xdp_channel_open(xdp, 9, 8);
	assert_int_equal(channels[small].first_slot, 64);
	assert_int_equal(xdp_slots(xdp)[64].state, FAST_CLOSED);
	assert_int_equal(channels[small].tokens[0], 0);
	xdp_channel_close(xdp, other);
	assert_int_equal(channels[xdp_channel_open(xdp, 10, 8)].first_slot, 72);
}

static void test_many_channels(void **state)
{
	struct world *world = *state;
	struct xdp *xdp = world->xdp;
	struct frame frame;

	xdp_channel_close(xdp, world->index);
	for (uint16_t i = 0; i < SLOT_COUNT; i++)
		assert_int_equal(xdp_channel_open(xdp, i, 1), i);
	assert_int_equal(xdp_channel_open(xdp, 999, 1), -ENOSPC);
	frame_make(&frame, WIRE_KNOCK, 0, NULL, 0);
	frame.at.wire.channel = SLOT_COUNT - 1;
	expect_pass(world, &frame);
	for (uint16_t i = 1; i < SLOT_COUNT; i += SLOT_COUNT / 4)
		xdp_channel_close(xdp, i);
	frame.at.wire.channel = 1;
	expect_drop(world, &frame, WIRE_DROP_CHANNEL);
	xdp_channel_close(xdp, 0);
	assert_int_equal(xdp_channel_open(xdp, CHANNEL, 2), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open_errors),
		in_world(test_slot_ranges),
		in_world(test_many_channels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
