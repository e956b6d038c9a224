// SPDX-License-Identifier: BSD-3-Clause
/* test_offload.c - the channels that the XDP program serves, and what is left when its device has gone */

#include "aggregator/offload.h"

#include <errno.h>
#include <string.h>

#include "tests/unit/unit.h"

/* ---- an XDP program that the test plays ---- */

static struct fast_channel channels[1];
static struct fast_slot slots[4];
static struct xdp_view view = {.mode = XDP_MODE_NATIVE, .channels = channels, .slots = slots};
static bool attached, known;
static int room; /* what xdp_channel_open() returns */

int xdp_open(const struct xdp_config *config, struct xdp **out, struct why *why)
{
	attached = true;
	*out = (struct xdp *)&view;
	return 0;
}

void xdp_close(struct xdp *xdp)
{
}

const struct xdp_view *xdp_look(const struct xdp *xdp)
{
	return &view;
}

bool xdp_attached(const struct xdp *xdp)
{
	return attached;
}

int xdp_channel_open(struct xdp *xdp, uint16_t id, uint32_t window)
{
	channels[0] = (struct fast_channel){.id = id, .first_slot = 2};
	return room;
}

void xdp_known(struct xdp *xdp, uint16_t id, bool is_known)
{
	known = is_known;
}

void xdp_counters(const struct xdp *xdp, uint64_t out[FAST_COUNTER_COUNT])
{
	out[0] = 7;
}

/* ---- */

static struct offload *opened(void)
{
	const struct xdp_config config = {.device = "eth7"};
	struct offload *offload;
	struct why why;

	room = 0;
	assert_int_equal(offload_open(&config, 0, &offload, &why), 0);
	return offload;
}

TEST_ON(shares, struct offload *, offload, opened(), offload_close(offload))
{
	const uint64_t tokens[2] = {1, 2};
	struct jobs_channel channel = {.id = 3, .worker_count = 2};
	struct channel_config config = {.tokens = tokens};

	assert_null(offload_share(offload, &channel, &config));
	assert_ptr_equal(config.fast, &channels[0]);
	assert_ptr_equal(config.fast_slots, &slots[2]);
	assert_memory_equal(channels[0].tokens, tokens, sizeof(tokens));
	room = -ENOSPC;
	assert_string_equal(offload_share(offload, &channel, &config),
	                    "other jobs have the slots: see --xdp-slots");
	assert_true(known);
	channel.worker_count = FAST_WORKERS_MAX + 1;
	assert_string_equal(offload_share(offload, &channel, &config), "more than 64 workers");
}

/* HTTP's thread may still have the text of before: it stays. */
TEST_ON(lost, struct offload *, offload, opened(), offload_close(offload))
{
	const struct jobs_channel channel = {.id = 3, .worker_count = 2};
	const char *before = offload_describe(offload);
	struct channel_config config;

	assert_false(offload_lost(offload));
	assert_true(offload_works(offload));
	attached = false;
	assert_true(offload_lost(offload));
	assert_false(offload_lost(offload)); /* once is enough */
	assert_false(offload_works(offload));
	assert_string_equal(offload_describe(offload), "no: eth7 is gone");
	assert_string_equal(before, "native");
	assert_string_equal(offload_share(offload, &channel, &config),
	                    "the device is gone: restart winnowd when it is back");
}

TEST(none)
{
	const struct jobs_channel channel = {.id = 3, .worker_count = 2};
	uint64_t counters[FAST_COUNTER_COUNT] = {1};
	struct channel_config config;

	assert_false(offload_lost(NULL) || offload_works(NULL));
	assert_string_equal(offload_describe(NULL), "no");
	assert_string_equal(offload_share(NULL, &channel, &config), "");
	offload_unshare(NULL, 3);
	offload_release(NULL, 3);
	offload_counters(NULL, counters);
	assert_int_equal(counters[0], 0);
	offload_close(NULL);
}
