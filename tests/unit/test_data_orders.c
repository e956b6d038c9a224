// SPDX-License-Identifier: BSD-3-Clause
/* test_data_orders.c - what the control thread asks of data threads, and what stays counted */

#include "tests/unit/test_data.h"
#include "tests/unit/unit.h"

/* The port is gone: that is said, and again, until somebody ends it. */
TEST(lost)
{
	struct world *w = world_open(2);

	locked(nets[1], nets[1]->ill = "port net_fake0 has been removed");
	for (uint32_t i = 0; i < 3; i++) {
		deliver_one(nets[1], knock_of(ID, 0, 600));
		await(w, w->told.losses > i);
	}
	assert_string_equal(told_of(w).lost, "port net_fake0 has been removed");
	world_close(w);
}

/* Orders reach the thread that the number names; a number that nobody has is none. */
TEST(orders)
{
	const struct net_facts *facts;
	struct channel_config configs[3];
	struct data_look look;
	struct data_stats sum;
	struct world *w = world_open(3);

	for (uint16_t i = 0; i < 3; i++) {
		configs[i] = channel_usual((uint16_t)(0x0500 + i + 3 * i)); /* threads 0, 1, 2 */
		attach(w, &configs[i]);
		assert_false(channel_looked(w, (uint16_t)(configs[i].id + 0x100), &look));
	}
	for (uint16_t i = 0; i < 3; i++) {
		struct net *own = nets[configs[i].id % 256 % 3];

		deliver_one(own, knock_of(configs[i].id, 0, 700));
		await(own, count_sent(own, WIRE_KNOCKED, WORKER_IP(0)) == 1);
		start(w, &configs[i], all);
		deliver_one(own, announce_of(configs[i].id, 0, 40, 64));
		do
			assert_true(channel_looked(w, configs[i].id, &look));
		while (look.stats.received == 0);
		assert_int_equal(look.view.operations, 1);
		assert_int_equal(look.view.slots, 64);
		assert_int_equal(look.view.wait.stall.missing, 3);
	}
	data_look(w->data, NULL, 0, &sum);
	assert_int_equal(sum.net.received, 6);
	for (uint16_t i = 0; i < 3; i++) {
		data_detach(w->data, configs[i].id);
		assert_false(channel_looked(w, configs[i].id, &look));
	}
	facts = data_facts(w->data);
	assert_string_equal(data_backend(w->data), "fake");
	assert_int_equal(facts->buffer_bytes, 4711);
	assert_int_equal(facts->payload_max, 1234);
	assert_int_equal(net_ip_number(&facts->address.ip), OUR_IP);
	world_close(w);
}

/* What was counted of a job stays counted when it has ended, and the channel's number is free again. */
TEST(counters)
{
	const struct channel_config config = channel_usual(ID);
	struct world *w = world_open(1);
	struct data_look look;
	struct data_stats stats;

	for (uint32_t job = 0; job < 3; job++) {
		struct datagram *bad = push_of(ID, 1, FIRST_FRAME, BLOCK_ELEMS);

		attach(w, &config);
		start(w, &config, all);
		bad->data[8]++; /* the token */
		deliver_one(nets[0], bad);
		do
			assert_true(channel_looked(w, ID, &look));
		while (look.stats.drops[WIRE_DROP_SEAL] == 0);
		assert_int_equal(look.stats.drops[WIRE_DROP_SEAL], 1);
		data_look(w->data, NULL, 0, &stats);
		assert_int_equal(stats.drops[WIRE_DROP_SEAL], job); /* of those that have ended */
		data_detach(w->data, ID);
		data_look(w->data, NULL, 0, &stats);
		assert_int_equal(stats.drops[WIRE_DROP_SEAL], job + 1);
	}
	/* For nobody now. */
	deliver_one(nets[0], push_of(ID, 1, FIRST_FRAME, BLOCK_ELEMS));
	do
		data_look(w->data, NULL, 0, &stats);
	while (stats.drops[WIRE_DROP_CHANNEL] == 0);
	assert_int_equal(stats.drops[WIRE_DROP_CHANNEL], 1);
	world_close(w);
}

/* Another job may have the number now, and other jobs' channels are other threads'. */
TEST(looks)
{
	struct channel_config configs[4];
	struct channel_waits waits[WORKERS] = {0};
	struct world *w = world_open(3);
	struct data_look looks[6];
	struct data_stats stats;

	for (uint16_t i = 0; i < 4; i++) {
		configs[i] =
			channel_usual((uint16_t)(0x0100 * (i / 2) + i)); /* threads 0, 1, 2, 0 */
		attach(w, &configs[i]);
		if (i != 2)
			start(w, &configs[i], all);
	}
	for (uint16_t i = 0; i < 6; i++)
		looks[i] = (struct data_look){.id = configs[i % 4].id,
		                              .group_token = GROUP_TOKEN + (i == 4),
		                              .worker_count = i == 5 ? WORKERS + 1 : WORKERS,
		                              .waits = waits};
	data_look(w->data, looks, 6, &stats);
	for (uint32_t i = 0; i < 6; i++)
		assert_int_equal(looks[i].found, i != 2 && i < 4); /* one has not started */
	assert_int_equal(looks[3].view.slots, 64);
	for (uint32_t i = 0; i < 4; i++)
		data_detach(w->data, configs[i].id);
	data_look(w->data, looks, 6, &stats);
	for (uint32_t i = 0; i < 6; i++)
		assert_false(looks[i].found);
	data_look(w->data, NULL, 0, &stats);
	world_close(w);
}

struct looker {
	struct world *w;
	atomic_bool stop;
	_Atomic uint32_t looked, found;
};

static void *look_on(void *context)
{
	struct looker *looker = context;

	while (!atomic_load(&looker->stop)) {
		struct data_look look;

		looker->found += channel_looked(looker->w, ID, &look);
		looker->looked++;
	}
	return NULL;
}

/* One looks without end while the control thread begins and ends jobs. */
WORLD_TEST(looks_beside_orders)
{
	const struct channel_config config = channel_usual(ID);
	struct looker looker = {.w = w};
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, look_on, &looker), 0);
	attach(w, &config);
	start(w, &config, all);
	for (uint32_t job = 0; job < 500; job++) {
		data_detach(w->data, ID);
		attach(w, &config);
		data_start(w->data, ID, w->channels[0], all);
	}
	while (looker.found == 0)
		sched_yield();
	atomic_store(&looker.stop, true);
	pthread_join(thread, NULL);
	assert_true(looker.looked >= looker.found && looker.found > 0);
}

/* Datagrams of three threads come in one burst, joined by the kernel: each goes to its own thread. */
TEST(strays)
{
	struct channel_config configs[3];
	struct datagram *list[1 + 3 * WORKERS];
	struct world *w = world_open(3);
	struct data_stats stats;
	uint32_t count = 0;

	for (uint16_t i = 0; i < 3; i++) {
		configs[i] = channel_usual((uint16_t)(0x0100 + i));
		attach(w, &configs[i]);
	}
	for (uint16_t rank = 0; rank < WORKERS; rank++)
		for (uint16_t i = 0; i < 3; i++)
			list[count++] = knock_of(configs[i].id, rank, 600);
	list[count++] = knock_of(0x0201, 0, 600); /* of thread 1, and nobody's */
	deliver(nets[2], list, count);
	for (uint16_t i = 0; i < 3; i++)
		for (uint16_t rank = 0; rank < WORKERS; rank++)
			await(nets[configs[i].id % 256 % 3],
			      count_sent(nets[configs[i].id % 256 % 3], WIRE_KNOCKED,
			                 WORKER_IP(rank)) == 1);
	do
		data_look(w->data, NULL, 0, &stats);
	while (stats.drops[WIRE_DROP_CHANNEL] == 0);
	assert_int_equal(stats.drops[WIRE_DROP_CHANNEL], 1);
	for (uint16_t i = 0; i < 3; i++)
		data_detach(w->data, configs[i].id);
	deliver_one(nets[2], knock_of(configs[0].id, 0, 600));
	do
		data_look(w->data, NULL, 0, &stats);
	while (stats.drops[WIRE_DROP_CHANNEL] == 1);
	world_close(w);
}

/* A net that cannot be opened: the line is its own, and those before it are closed. */
TEST(open_fails)
{
	struct data_config config = {.backend = &fake,
	                             .net = {.payload_max = 1472, .queue_count = 3}};
	struct data *data = NULL;
	struct why why = {""};

	for (uint32_t limit = 0; limit < 3; limit++) {
		net_opens = nets_closed = 0;
		net_open_limit = limit;
		assert_int_equal(data_open(&config, &data, &why), -EADDRINUSE);
		assert_string_equal(why.text, "no more nets");
		assert_int_equal(nets_closed, limit);
		assert_null(data);
	}
}
