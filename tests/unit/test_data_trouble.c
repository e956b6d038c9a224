// SPDX-License-Identifier: BSD-3-Clause
/*
 * test_data_trouble.c - what data threads tell of paths that are wrong, and of what is none of it
 *
 * waits: for looks at paths, a second apart
 */

#include "aggregator/data_state.h"
#include "tests/unit/test_data.h"
#include "tests/unit/unit.h"

/* ---- workers that are not reached ---- */

static void trouble_with(struct net *net, uint32_t count, const struct net_trouble list[])
{
	locked(net, net->trouble_count = count;
	       memcpy(net->troubles, list, count * sizeof(list[0])));
}

static struct net_trouble with_worker(uint16_t rank, int error)
{
	return (struct net_trouble){
		{net_ipv4(WORKER_IP(rank)), WORKER_PORT(rank)}, error, 10, mark_of(ID, rank)};
}

/* After so many looks of a thread that has something to do, the number of reports. */
static uint32_t reports_after(struct world *w, uint32_t looks)
{
	uint32_t from;

	locked(nets[0], from = nets[0]->health_calls);
	await(nets[0], nets[0]->health_calls >= from + looks);
	return told_of(w).troubles;
}

/* Frames wait for acknowledgements, and sends to two workers are refused: that is said, once a second. */
STARTED_TEST(trouble, none)
{
	const struct net_trouble list[] = {{{NET_IPV4(0x01020304), 5},
	                                    EIO,
	                                    1,
	                                    mark_of(ID + 1, 1)}, /* whose is it? nobody's here */
	                                   with_worker(1, EMSGSIZE),
	                                   with_worker(3, EPERM)};
	uint32_t first;

	announce_all(nets[0], ID, BLOCKS, BLOCK_ELEMS);
	trouble_with(nets[0], 3, list);
	await(w, w->told.troubles == 1);
	assert_int_equal(told_of(w).trouble_id, ID);
	assert_int_equal(told_of(w).trouble.rank, 1);
	assert_int_equal(told_of(w).trouble.more, 1);
	assert_int_equal(told_of(w).trouble.error, EMSGSIZE);
	assert_true(told_of(w).trouble.count >= 30 &&
	            told_of(w).trouble.count % 10 == 0); /* of three looks at least */
	assert_in_range(told_of(w).trouble.for_us, 700000, LIMIT_MS * 1000);
	first = reports_after(w, 9); /* 2.25 s on */
	assert_in_range(first, 2, 4);
	/* It is over. */
	trouble_with(nets[0], 0, list);
	first = reports_after(w, 8); /* what was known may have been told once more */
	assert_int_equal(reports_after(w, 6), first);
}

/* Datagrams that come several in one are told of with what came whole, though the channel gets on. */
STARTED_TEST(trouble_merged, none)
{
	struct net_trouble list[] = {with_worker(2, NET_MERGED)};
	uint64_t of;

	list[0].mark = 0; /* nothing was sent */
	deliver_one(nets[0], announce_of(ID, 0, BLOCKS, BLOCK_ELEMS));
	for (uint32_t i = 0; i < 30; i++)
		deliver_one(nets[0], status_of(ID, 1, FIRST_FRAME, false));
	await(nets[0], nets[0]->in_count == 0);
	reports_after(w, 2); /* what comes before counts no more */
	trouble_with(nets[0], 1, list);
	await(w, w->told.troubles == 1);
	assert_int_equal(told_of(w).trouble.kind, JOBS_MERGED);
	assert_int_equal(told_of(w).trouble.rank, 2);
	assert_in_range(told_of(w).trouble.for_us, 700000, LIMIT_MS * 1000);
	assert_int_equal(told_of(w).trouble.stands_us, 0); /* nothing is planned */
	of = told_of(w).trouble.of;
	assert_int_equal(of, 0);
	for (uint32_t i = 0; i < 50; i++)
		deliver_one(nets[0], status_of(ID, 1, FIRST_FRAME, false));
	await(nets[0], nets[0]->in_count == 0);
	await(w, w->told.troubles >= 3);
	assert_int_equal(told_of(w).trouble.of, of + 50);
}

/* ---- frames that the kernel might have added ---- */

/* An operation of i32, of so many frames that the kernel is to add, and adds `share` of a hundred. */
static void fast_operation(uint32_t frames, uint32_t share, bool slow)
{
	static struct fast_slot slots[1024];
	static struct fast_channel fast;
	struct channel_config config = channel_usual(ID);
	struct datagram *list[WORKERS];
	uint32_t missed = 3 * frames;
	struct world *w;

	memset(slots, 0, sizeof(slots));
	memset(&fast, 0, sizeof(fast));
	config.fast = &fast;
	config.fast_slots = slots;
	config.window = 1024;
	w = started(&config, all);
	for (uint16_t rank = 0; rank < WORKERS; rank++) {
		list[rank] = announce_of(ID, rank, frames, BLOCK_ELEMS);
		list[rank]->data[76] = DTYPE_I32;
	}
	deliver(nets[0], list, WORKERS);
	await(nets[0], count_sent(nets[0], WIRE_PLAN, GROUP_IP) == 1);
	for (uint16_t rank = 1; rank < WORKERS; rank++) {
		struct datagram *pushes[300];

		/* What the kernel does is this alone, as far as is counted. */
		__atomic_fetch_add(&fast.stats[FAST_STAT_PUSHES], frames * share / (100 - share),
		                   __ATOMIC_RELAXED);
		for (uint32_t i = 0; i < frames; i++)
			pushes[i] = push_of(ID, rank, FIRST_FRAME + i, BLOCK_ELEMS);
		deliver(nets[0], pushes, frames);
	}
	if (slow) {
		await(w, w->told.troubles == 1);
		assert_int_equal(told_of(w).trouble.kind, JOBS_SLOW);
		assert_int_equal(told_of(w).trouble.rank, WIRE_EVERYONE);
		/* Of the last seconds: on a busy machine some of them came before. */
		assert_in_range(told_of(w).trouble.of - told_of(w).trouble.count, 500, missed);
		assert_in_range(told_of(w).trouble.count, 0, missed * share / (100 - share));
	}
	assert_int_equal(reports_after(w, 10), slow); /* and no more: nothing has come since */
	data_detach(w->data, ID);
	world_close(w);
}

TEST(slow)
{
	fast_operation(300, 1, true);
	fast_operation(300, 40, false); /* two thirds of what the kernel left to us */
	fast_operation(160, 1, false);  /* too few to say */
}

/* What is refused now and then, while the channel gets on or has nothing to do, is no trouble. */
STARTED_TEST(no_trouble, none)
{
	const struct net_trouble list[] = {with_worker(1, EPERM)};

	trouble_with(nets[0], 1, list);
	deliver_one(nets[0], announce_of(ID, 0, BLOCKS, BLOCK_ELEMS));
	assert_int_equal(reports_after(w, 6), 0); /* busy, with no frame planned */
	for (uint16_t rank = 1; rank < WORKERS; rank++)
		deliver_one(nets[0], announce_of(ID, rank, BLOCKS, BLOCK_ELEMS));
	/* A frame every 100 ms or so, for 2 s. */
	for (uint32_t i = 1; i <= 20; i++) {
		for (uint16_t rank = 0; rank < WORKERS; rank++) {
			deliver_one(nets[0], status_of(ID, rank, FIRST_FRAME + i, false));
		}
		usleep(100000);
	}
	assert_int_equal(told_of(w).troubles, 0);
	await(w, w->told.troubles == 1); /* and then no more */
}

/* Worker 1 knocks, with the proof or without, and nothing gets out to it: that is told, and whose it is. */
static void expect_told_while_knocking(struct world *w, bool proven)
{
	const struct net_trouble list[] = {with_worker(1, EPERM)};

	trouble_with(nets[0], 1, list);
	for (uint32_t i = 0; told_of(w).troubles == 0 && i < LIMIT_MS / 20; i++) {
		struct datagram *knock = knock_of(ID, 1, 1472);

		if (!proven)
			memset(knock->data + offsetof(struct wire_header, number), 0, 8);
		deliver(nets[0], &knock, 1);
		usleep(20000);
	}
	await(w, w->told.troubles == 1);
	assert_int_equal(told_of(w).trouble.rank, 1);
	assert_int_equal(told_of(w).trouble.error, EPERM);
}

/* While workers knock, what is too large is how they learn their size, and a group may not be there. */
WORLD_TEST(trouble_before_start)
{
	const struct channel_config config = channel_usual(ID);
	const struct net_trouble fine[] = {
		{{net_ipv4(GROUP_IP), GROUP_PORT}, EPERM, 7, mark_of(ID, WIRE_EVERYONE)},
		with_worker(1, EMSGSIZE)};

	attach(w, &config);
	knock_all(nets[0], ID, 600);
	trouble_with(nets[0], 2, fine);
	for (uint64_t from_ms = clock_ms(); clock_ms() < from_ms + 1500; usleep(20000))
		deliver_one(nets[0], knock_of(ID, 1, 1472));
	assert_int_equal(told_of(w).troubles, 0);
	expect_told_while_knocking(w, true);
}
