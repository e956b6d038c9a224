// SPDX-License-Identifier: BSD-3-Clause
/*
 * test_xdp_loader.c - xdp.c: errors, who gets which slots, and coming to a device and leaving it
 *
 * The devices are a pair in a network namespace of this process, gone when it ends.
 */

#include <sched.h>
#include <sys/wait.h>

#include "tests/unit/xdp_world.h"

TEST(open_errors)
{
	struct xdp_config config = {.device = "no-such-device", .port = OUR_PORT, .slot_count = 1};
	struct xdp *xdp = NULL;
	struct why why;

	assert_int_equal(xdp_open(&config, &xdp, &why), -ENODEV);
	assert_non_null(strstr(why.text, "no-such-device"));
	config.slot_count = 0;
	assert_int_equal(xdp_open(&config, &xdp, &why), -EINVAL);
	config.slot_count = XDP_SLOTS_MAX + 1;
	assert_int_equal(xdp_open(&config, &xdp, &why), -EINVAL);
	assert_null(xdp);
	xdp_close(NULL);
}

WORLD_TEST_ALONE(slot_ranges)
{
	/* The world has slots 0 .. 63 of 96. */
	struct xdp *xdp = world->xdp;
	const struct fast_channel *channels = xdp_look(xdp)->channels;
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
	assert_int_equal(xdp_look(xdp)->settings->known[8], FAST_KNOWN_FIRST + other);
	assert_int_equal(xdp_channel_open(xdp, 9, 1), -ENOSPC);

	xdp_look(xdp)->slots[64].state = FAST_DONE;
	xdp_known(xdp, 7, false);
	assert_int_equal(xdp_look(xdp)->settings->known[7], 0);
	small = xdp_channel_open(xdp, 9, 8);
	assert_int_equal(channels[small].first_slot, 64);
	assert_int_equal(xdp_look(xdp)->slots[64].state, FAST_CLOSED);
	assert_int_equal(channels[small].tokens[0], 0);
	xdp_known(xdp, 8, false);
	assert_int_equal(channels[xdp_channel_open(xdp, 10, 8)].first_slot, 72);
}

/* A channel that needs no slots any more goes on through user space. */
WORLD_TEST_ALONE(leave)
{
	struct xdp *xdp = world->xdp;
	struct frame frame;

	xdp_known(xdp, CHANNEL, true);
	assert_int_equal(xdp_look(xdp)->settings->known[CHANNEL], FAST_KNOWN_USER);
	frame_make(&frame, WIRE_PUSH, 0, NULL, 0);
	expect_pass(world, &frame);
	world->index = xdp_channel_open(xdp, 9, 64); /* which there was no room for */
	assert_int_equal(xdp_look(xdp)->channels[world->index].first_slot, 0);
	expect_pass(world, &frame);
	xdp_known(xdp, CHANNEL, false);
	expect_drop(world, &frame, WIRE_DROP_CHANNEL);
}

WORLD_TEST_ALONE(many_channels)
{
	struct xdp *xdp = world->xdp;
	struct frame frame;

	xdp_known(xdp, CHANNEL, false);
	for (uint16_t i = 0; i < SLOT_COUNT; i++)
		assert_int_equal(xdp_channel_open(xdp, i, 1), i);
	assert_int_equal(xdp_channel_open(xdp, 999, 1), -ENOSPC);
	frame_make(&frame, WIRE_KNOCK, 0, NULL, 0);
	frame.at.wire.channel = SLOT_COUNT - 1;
	expect_pass(world, &frame);
	for (uint16_t i = 1; i < SLOT_COUNT; i += SLOT_COUNT / 4)
		xdp_known(xdp, i, false);
	frame.at.wire.channel = 1;
	expect_drop(world, &frame, WIRE_DROP_CHANNEL);
	xdp_known(xdp, 0, false);
	assert_int_equal(xdp_channel_open(xdp, CHANNEL, 2), 0);
}

/* ---- on a device ---- */

static void shell(const char *command)
{
	assert_int_equal(system(command), 0);
}

static int make_devices(void **state)
{
	if (unshare(CLONE_NEWNET) != 0) {
		printf("no network namespace of our own: %s\n", strerror(errno));
		exit(77);
	}
	shell("ip link add wnx0 type veth peer name wnx1 && ip link set wnx0 up && "
	      "ip link set wnx1 up");
	return 0;
}

static int open_at(enum xdp_mode mode, struct xdp **xdp, struct why *why)
{
	struct xdp_config config = {
		.device = "wnx0", .mode = mode, .port = OUR_PORT, .slot_count = 4};

	*xdp = NULL;
	return xdp_open(&config, xdp, why);
}

TEST(modes)
{
	static const enum xdp_mode modes[] = {XDP_MODE_AUTO, XDP_MODE_NATIVE, XDP_MODE_GENERIC};
	struct why why;
	struct xdp *xdp;

	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(open_at(modes[i], &xdp, &why), 0);
		assert_int_equal(xdp_look(xdp)->mode, i == 2 ? XDP_MODE_GENERIC : XDP_MODE_NATIVE);
		assert_string_equal(xdp_look(xdp)->note.text, "");
		xdp_close(xdp);
	}
	shell("ip link set wnx0 mtu 9000 && ip link set wnx1 mtu 9000");
	assert_int_equal(open_at(XDP_MODE_NATIVE, &xdp, &why), -EOPNOTSUPP);
	assert_non_null(strstr(why.text, "wnx0"));
	assert_non_null(strstr(why.text, "9000"));
	assert_int_equal(open_at(XDP_MODE_AUTO, &xdp, &why), 0);
	assert_int_equal(xdp_look(xdp)->mode, XDP_MODE_GENERIC);
	assert_non_null(strstr(xdp_look(xdp)->note.text, "9000"));
	xdp_close(xdp);
	shell("ip link set wnx0 mtu 1500 && ip link set wnx1 mtu 1500");
}

TEST(busy_device)
{
	struct why why;
	struct xdp *xdp, *second;

	for (int mode = XDP_MODE_NATIVE; mode <= XDP_MODE_GENERIC; mode++) {
		assert_int_equal(open_at((enum xdp_mode)mode, &xdp, &why), 0);
		assert_int_equal(open_at(XDP_MODE_AUTO, &second, &why), -EBUSY);
		assert_non_null(strstr(why.text, "wnx0"));
		assert_non_null(strstr(why.text, "\"winnow\""));
		xdp_close(xdp);
	}
}

/* However the process ends, the device is free afterwards. */
TEST(crash)
{
	struct why why;
	struct xdp *xdp;
	int status = -1;
	pid_t child;

	child = fork();
	if (child == 0)
		_exit(open_at(XDP_MODE_AUTO, &xdp, &why) == 0 ? 0 : 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	for (int tries = 0; tries < 100 && open_at(XDP_MODE_AUTO, &xdp, &why) != 0; tries++)
		usleep(10000); /* the kernel cleans up at its leisure */
	assert_non_null(xdp);
	xdp_close(xdp);
}

int main(void)
{
	return unit_run(make_devices, NULL);
}
