// SPDX-License-Identifier: BSD-3-Clause
/* test_node_stats.c - the statistics of a node, from those of its GPUs' communicators */

#include "client/comm/comm_state.h"
#include "client/node/node_state.h"
#include "tests/unit/unit.h"

#define GPUS 3

static struct winnow_comm comms[GPUS];
static struct winnow_node node = {.setup = {.count = GPUS}};

static struct winnow_stats stats_of_node(const struct winnow_stats of[GPUS])
{
	struct winnow_stats stats;

	for (uint32_t i = 0; i < GPUS; i++) {
		pthread_mutex_init(&comms[i].shared.lock, NULL);
		comms[i].shared.news.stats = of[i];
		node.comms[1 + i] = &comms[i];
	}
	winnow_node_stats(&node, &stats);
	return stats;
}

TEST(sums)
{
	const struct winnow_stats of[GPUS] = {{.sent_bytes = 1, .channels = 2, .window_now = 3},
	                                      {.sent_bytes = 10, .channels = 20, .window_now = 30},
	                                      {.sent_bytes = 100}};
	struct winnow_stats stats = stats_of_node(of);

	assert_int_equal(stats.sent_bytes, 111);
	assert_int_equal(stats.channels, 22);
	assert_int_equal(stats.window_now, 33);
}

/* The slowest, and the shortest ever; 0 is none, of a communicator that has measured nothing yet. */
TEST(round_trips)
{
	static const uint32_t least[][GPUS + 2] = {
		/* of each; the shortest, the longest */
		{50, 40, 60, 40, 60}, {0, 50, 60, 50, 60}, {50, 0, 60, 50, 60},
		{60, 50, 0, 50, 60},  {0, 0, 0, 0, 0},
	};

	for (size_t i = 0; i < sizeof(least) / sizeof(least[0]); i++) {
		struct winnow_stats of[GPUS] = {0}, stats;

		for (uint32_t gpu = 0; gpu < GPUS; gpu++) {
			of[gpu].rtt_least_us = least[i][gpu];
			of[gpu].rtt_us = 10 * least[i][gpu];
		}
		stats = stats_of_node(of);
		assert_int_equal(stats.rtt_least_us, least[i][GPUS]);
		assert_int_equal(stats.rtt_us, 10 * least[i][GPUS + 1]);
	}
}
