// SPDX-License-Identifier: BSD-3-Clause
/* test_simnet.c - queues of the simulation's switches: time, room, marks, and what is counted */

#include "tests/sim/simnet.h"
#include "tests/unit/unit.h"

#define BYTES (1000 - SIMNET_HEADER_BYTES) /* 1000 on the wire: 100 us */
#define RATE 80000000

static const uint8_t data[BYTES];

static struct simnet *net_with(const struct simnet_queue *queue)
{
	struct simnet *net = simnet_open(1, 4);

	assert_int_equal(simnet_queue_add(net, queue), 1);
	return net;
}

static void send(struct simnet *net, uint32_t from, uint32_t to)
{
	simnet_send(net, from, &to, 1, data, sizeof(data));
}

/* How many come, the last one when, and how many of them are marked. */
static uint32_t come(struct simnet *net, uint64_t *last_us, uint32_t *marked)
{
	struct sim_event event;
	uint32_t count = 0;

	*marked = 0;
	while (simnet_next(net, &event)) {
		count++;
		*last_us = event.at_us;
		*marked += event.marked;
		simnet_free(&event);
	}
	return count;
}

/* Two nodes' ways in lead through it: one after the other, after 7 us; what finds no room is lost. */
TEST(in)
{
	struct simnet *net =
		net_with(&(struct simnet_queue){.rate_bits_s = RATE, .buffer_bytes = 5000});
	struct simnet_queue_stats stats;
	uint32_t marked;
	uint64_t last_us;

	for (uint32_t node = 2; node < 4; node++) {
		simnet_in(net, node)->queue = 1;
		simnet_in(net, node)->delay_us_min = simnet_in(net, node)->delay_us_max = 7;
	}
	for (uint32_t i = 0; i < 4; i++) {
		send(net, 0, 2);
		send(net, 1, 3);
	}
	assert_int_equal(come(net, &last_us, &marked), 5);
	assert_int_equal(last_us, 507);
	assert_int_equal(marked, 0);
	assert_int_equal(simnet_meter(net, 1, 2)->datagrams, 3);
	assert_int_equal(simnet_meter(net, 1, 3)->datagrams, 2);
	assert_int_equal(simnet_meter(net, 1, 2)->dropped, 1);
	assert_int_equal(simnet_meter(net, 1, 1)->dropped, 2);
	assert_int_equal(simnet_meter(net, 1, 0)->bytes, 3000);
	assert_int_equal(simnet_stats(net)->overflowed, 3);
	simnet_queue_stats(net, 1, &stats);
	assert_int_equal(stats.bytes_max, 5000);
	simnet_close(net);
}

/* A way out begins with it; what is sent to several takes its time once. */
TEST(out)
{
	struct simnet *net = net_with(&(struct simnet_queue){
		.rate_bits_s = RATE, .buffer_bytes = 100000, .mark_bytes = 2000});
	const uint32_t to[] = {1, 2, 3};
	uint32_t marked;
	uint64_t last_us;

	simnet_out(net, 0)->queue = 1;
	for (uint32_t i = 0; i < 4; i++)
		simnet_send(net, 0, to, 3, data, sizeof(data));
	assert_int_equal(come(net, &last_us, &marked), 12);
	assert_int_equal(last_us, 400);
	assert_int_equal(marked, 3); /* the last, of which 3000 wait before it */
	assert_int_equal(simnet_meter(net, 1, 0)->marked, 1);
	assert_int_equal(simnet_meter(net, 1, 0)->datagrams, 4);
	simnet_close(net);
}

/* It drains; the mean is over time. */
TEST(drains)
{
	struct simnet *net =
		net_with(&(struct simnet_queue){.rate_bits_s = RATE, .buffer_bytes = 2000});
	struct simnet_queue_stats stats;
	struct sim_event event;

	simnet_out(net, 0)->queue = 1;
	send(net, 0, 1);
	send(net, 0, 1);
	send(net, 0, 1);
	assert_int_equal(simnet_meter(net, 1, 0)->dropped, 1);
	simnet_timer(net, 0, 0, 400);
	do {
		assert_true(simnet_next(net, &event));
		simnet_free(&event);
	} while (event.kind != SIM_TIMER);
	send(net, 0, 1);
	assert_int_equal(simnet_meter(net, 1, 0)->datagrams, 3);
	simnet_queue_stats(net, 1, &stats);
	/* 2000 that drain in 200 us, then nothing for as long. */
	assert_float_equal(stats.bytes_mean, 500, 1);
	simnet_close(net);
}
