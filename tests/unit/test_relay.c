// SPDX-License-Identifier: BSD-3-Clause
/*
 * test_relay.c - two sites with two workers each, and a worker without a site, around a parent
 *
 * Everything of the data plane is real but the network, which delays, reorders and loses datagrams, by chance from a seed.
 */

#include <stdlib.h>
#include <string.h>

#include "aggregator/site/relay.h"
#include "client/winnow.h"
#include "client/worker/array.h"
#include "client/worker/engine.h"
#include "tests/check/check.h"
#include "tests/flatten.h"
#include "tests/unit/unit.h"

#define WORKERS 5
#define SITES 2
#define PARENT (WORKERS + SITES) /* the number of its node, after those of workers and sites */
#define PAYLOAD WIRE_PAYLOAD_MIN
#define WINDOW 64
#define FIRST (UINT32_MAX - 100) /* frame numbers wrap */
#define TOKEN 7
#define GROUP 70
#define FLIGHTS 4096
#define OPS 4
#define ELEMS_MAX 40000
#define BLOCK 32

struct flight {
	uint64_t due_us;
	uint32_t to; /* a node */
	bool to_worker;
	uint32_t bytes;
	uint8_t data[PAYLOAD];
};

struct op {
	struct allreduce task[WORKERS];
	uint8_t dtype, reduction, form;
	bool scatter;
	uint32_t count;
	void *in[WORKERS], *out[WORKERS];
};

struct place {
	struct channel *channel;
	struct relay *relay; /* NULL: the parent */
};

struct world {
	uint64_t now_us;
	uint32_t lost_per_1000, left;
	uint64_t chance;
	struct bitmap_pool *pool;
	struct engine *workers[WORKERS];
	struct place places[SITES + 1];
	uint32_t flight_count;
	uint64_t sent[PARENT + 1]; /* bytes to that node */
	struct flight *flights;
	struct op ops[OPS];
};

static uint32_t draw(struct world *w, uint32_t below)
{
	w->chance = w->chance * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(w->chance >> 33) % below;
}

static uint32_t site_of(uint32_t rank)
{
	return rank / 2; /* the last worker's is the parent */
}

/* ---- the network ---- */

static void fly(struct world *w, uint32_t to, bool to_worker, const struct packet_out *out)
{
	struct flight *flight;

	w->sent[to] += out->bytes;
	if (draw(w, 1000) < w->lost_per_1000)
		return;
	assert_true(w->flight_count < FLIGHTS);
	flight = &w->flights[w->flight_count++];
	packet_flatten(out, flight->data);
	flight->bytes = out->bytes;
	flight->to = to;
	flight->to_worker = to_worker;
	flight->due_us = w->now_us + 100 + draw(w, 100);
}

/* What an aggregator sends to a rank goes to the worker, or to the site that has it. */
static void fly_down(struct world *w, uint32_t place, const struct packet_out *out)
{
	for (uint32_t rank = 0; rank < WORKERS; rank++) {
		if (out->dest != WIRE_EVERYONE && out->dest != rank)
			continue;
		struct packet_out head = *out;

		/* As data_packets.c: who does not receive the blocks gets the head alone. */
		if (out->dest == WIRE_EVERYONE && out->receiver != WIRE_EVERYONE &&
		    out->receiver != rank) {
			head.piece_count = 1;
			head.bytes = (uint32_t)head.pieces[0].iov_len;
		}
		head.pieces[0].iov_base = head.head;
		if (site_of(rank) == place)
			fly(w, rank, true, &head);
		else if (place == SITES && rank % 2 == 0)
			fly(w, WORKERS + site_of(rank), true, &head);
	}
}

static void pull_all(struct world *w)
{
	uint8_t scratch[PAYLOAD];
	struct packet_out out = {.scratch = scratch};

	for (uint32_t i = 0; i < WORKERS; i++) {
		while (engine_work(w->workers[i], w->now_us))
			;
		while (engine_pull(w->workers[i], 0, 1, w->now_us, &out))
			fly(w, WORKERS + site_of(i), false, &out);
	}
	for (uint32_t i = 0; i <= SITES; i++) {
		struct place *place = &w->places[i];

		if (place->relay != NULL) {
			relay_work(place->relay, w->now_us);
			while (relay_pull(place->relay, w->now_us, &out))
				fly(w, PARENT, false, &out);
		}
		while (channel_pull(place->channel, w->now_us, &out))
			fly_down(w, i, &out);
	}
}

static void land(struct world *w, const struct flight *flight)
{
	struct packet packet;

	assert_int_equal(packet_parse(flight->data, flight->bytes, flight->to_worker, &packet),
	                 WIRE_DROP_NONE);
	if (flight->to < WORKERS)
		assert_null(engine_receive(w->workers[flight->to], 0, &packet, w->now_us));
	else if (flight->to_worker)
		relay_receive(w->places[flight->to - WORKERS].relay, &packet, flight->data,
		              flight->bytes, w->now_us);
	else
		channel_receive(w->places[flight->to - WORKERS].channel, &packet, w->now_us);
}

static void step(struct world *w)
{
	uint64_t due_us = UINT64_MAX;
	uint32_t first = w->flight_count;
	struct flight flight;

	pull_all(w);
	for (uint32_t i = 0; i < WORKERS; i++)
		sooner(&due_us, engine_deadline(w->workers[i]));
	for (uint32_t i = 0; i < SITES; i++)
		sooner(&due_us, relay_deadline(w->places[i].relay));
	for (uint32_t i = 0; i < w->flight_count; i++) {
		if (w->flights[i].due_us > due_us)
			continue;
		due_us = w->flights[i].due_us;
		first = i;
	}
	assert_true(due_us != UINT64_MAX);
	w->now_us = due_us > w->now_us ? due_us : w->now_us + 1;
	if (first == w->flight_count)
		return;
	flight = w->flights[first];
	w->flights[first] = w->flights[--w->flight_count];
	land(w, &flight);
}

/* ---- the world ---- */

/* At a site its workers speak, and at the parent the first of each site. */
#define NONE WIRE_EVERYONE
static const uint16_t speakers[SITES + 1][WORKERS] = {
	{0, 1, NONE, NONE, NONE},
	{NONE, NONE, 2, 3, NONE},
	{0, 0, 2, 2, 4},
};

static void place_open(struct world *w, uint32_t number)
{
	uint64_t tokens[WORKERS] = {TOKEN, TOKEN + 1, TOKEN + 2, TOKEN + 3, TOKEN + 4};
	struct place *place = &w->places[number];
	struct channel_config config = {.worker_count = WORKERS,
	                                .payload = PAYLOAD,
	                                .window = WINDOW,
	                                .op_slots = OPS,
	                                .segments_ahead = 2,
	                                .first_frame = FIRST,
	                                .group_token = GROUP + number,
	                                .tokens = tokens,
	                                .stall_us = 10000000,
	                                .speakers = speakers[number],
	                                .sited = number < SITES,
	                                .engine = bitmap_best()};
	struct link link = {.config = {.rank = 2 * number},
	                    .welcome = {.channel_count = 1,
	                                .token = tokens[2 * number],
	                                .group_token = GROUP + SITES},
	                    .start = {.window_start = WINDOW}};

	assert_int_equal(channel_open(&config, &place->channel), 0);
	if (number < SITES)
		assert_int_equal(relay_open(&link, 0, place->channel, &place->relay), 0);
}

static int world_open(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct stream_config stream = {.shard_count = 1,
	                               .world = WORKERS,
	                               .payload = PAYLOAD,
	                               .window = WINDOW,
	                               .window_start = WINDOW,
	                               .op_slots = OPS,
	                               .segments_ahead = 2,
	                               .first_frame = FIRST,
	                               .engine = bitmap_best()};

	assert_non_null(w);
	w->now_us = 1000000;
	w->flights = calloc(FLIGHTS, sizeof(*w->flights));
	assert_non_null(w->flights);
	assert_int_equal(bitmap_pool_open(bitmap_best(), 1, &w->pool), 0);
	for (uint32_t i = 0; i < WORKERS; i++) {
		stream.rank = (uint16_t)i;
		stream.token = TOKEN + i;
		stream.group_token = GROUP + site_of(i);
		assert_int_equal(engine_open(&stream, 1, w->pool, &w->workers[i]), 0);
	}
	for (uint32_t i = 0; i <= SITES; i++)
		place_open(w, i);
	*state = w;
	return 0;
}

static int world_close(void **state)
{
	struct world *w = *state;

	for (uint32_t i = 0; i < WORKERS; i++)
		engine_close(w->workers[i]);
	for (uint32_t i = 0; i <= SITES; i++) {
		relay_close(w->places[i].relay);
		channel_close(w->places[i].channel);
	}
	bitmap_pool_close(w->pool);
	free(w->flights);
	free(w);
	return 0;
}

/* ---- operations ---- */

static void done(struct allreduce *task)
{
	((struct world *)task->context)->left--;
}

/* Whole numbers, so that f32 sums are exact in any order. */
static void fill(struct world *w, struct op *op, uint32_t rank, uint32_t percent)
{
	for (uint32_t first = 0; first < op->count; first += BLOCK) {
		bool zero = draw(w, 100) >= percent;

		for (uint32_t i = first; i < first + BLOCK && i < op->count; i++) {
			int32_t value = zero ? 0 : (int32_t)draw(w, 2000) - 1000;

			if (op->dtype == DTYPE_F32)
				((float *)op->in[rank])[i] = (float)value;
			else
				((int32_t *)op->in[rank])[i] = value;
		}
	}
}

static double value_of(const struct op *op, const void *data, uint32_t i)
{
	return op->dtype == DTYPE_F32 ? (double)((const float *)data)[i]
	                              : (double)((const int32_t *)data)[i];
}

static void op_begin(struct world *w, struct op *op, uint64_t tag, uint32_t percent)
{
	for (uint32_t rank = 0; rank < WORKERS; rank++) {
		op->in[rank] = calloc(op->count, 4);
		op->out[rank] = calloc(op->count, 4);
		fill(w, op, rank, percent);
		op->task[rank] = (struct allreduce){.send = op->in[rank],
		                                    .recv = op->out[rank],
		                                    .count = op->count,
		                                    .tag = tag,
		                                    .block_elems = BLOCK,
		                                    .dtype = op->dtype,
		                                    .reduction = op->reduction,
		                                    .form = op->form,
		                                    .scatter = op->scatter,
		                                    .access = &array_access,
		                                    .done = done,
		                                    .context = w};
		assert_int_equal(engine_submit(w->workers[rank], &op->task[rank], w->now_us), 0);
		w->left++;
	}
}

static double expected(const struct op *op, uint32_t i)
{
	double sum = value_of(op, op->in[0], i);

	for (uint32_t rank = 1; rank < WORKERS; rank++) {
		double value = value_of(op, op->in[rank], i);

		if (op->reduction == REDUCE_MAX)
			sum = value > sum ? value : sum;
		else if (op->reduction == REDUCE_MIN)
			sum = value < sum ? value : sum;
		else
			sum += value;
	}
	return op->reduction == REDUCE_AVG && op->dtype == DTYPE_F32 ? (float)sum / WORKERS : sum;
}

static void op_end(struct op *op)
{
	for (uint32_t rank = 0; rank < WORKERS; rank++) {
		uint32_t count = op->scatter ? op->count / WORKERS : op->count;
		uint32_t first = op->scatter ? rank * count : 0;

		assert_int_equal(op->task[rank].status, WINNOW_OK);
		for (uint32_t i = 0; i < count; i++) {
			double off = value_of(op, op->out[rank], i) - expected(op, first + i);

			/* fixed32 rounds each value to a part of the largest. */
			assert_true(off < 1e-3 && off > -1e-3);
		}
		if (rank > 0 && !op->scatter)
			assert_memory_equal(op->out[rank], op->out[0], 4 * op->count);
	}
	for (uint32_t rank = 0; rank < WORKERS; rank++) {
		free(op->in[rank]);
		free(op->out[rank]);
	}
}

static void run(struct world *w, uint32_t rounds, uint32_t lost_per_1000)
{
	static const uint8_t kinds[][3] = {
		{DTYPE_F32, REDUCE_SUM, WIRE_NATIVE},  {DTYPE_F32, REDUCE_AVG, WIRE_NATIVE},
		{DTYPE_I32, REDUCE_SUM, WIRE_NATIVE},  {DTYPE_I32, REDUCE_MAX, WIRE_NATIVE},
		{DTYPE_F32, REDUCE_MIN, WIRE_NATIVE},  {DTYPE_F32, REDUCE_SUM, WIRE_FIXED32},
		{DTYPE_F32, REDUCE_AVG, WIRE_FIXED32},
	};
	static const uint32_t percents[] = {100, 30, 5, 1, 0};

	w->lost_per_1000 = lost_per_1000;
	for (uint32_t round = 0; round < rounds; round++) {
		uint32_t count = 1 + draw(w, OPS);

		for (uint32_t i = 0; i < count; i++) {
			const uint8_t *kind = kinds[draw(w, 7)];
			struct op *op = &w->ops[i];

			op->dtype = kind[0];
			op->reduction = kind[1];
			op->form = kind[2];
			op->count = 1 + draw(w, draw(w, 2) ? 200 : ELEMS_MAX);
			op->scatter = draw(w, 4) == 0;
			if (op->scatter)
				op->count = (op->count + WORKERS - 1) / WORKERS * WORKERS;
			op_begin(w, op, 1 + round * OPS + i, percents[draw(w, 5)]);
		}
		for (uint64_t until_us = w->now_us + 60000000; w->left > 0;) {
			step(w);
			assert_true(w->now_us < until_us);
		}
		for (uint32_t i = 0; i < count; i++)
			op_end(&w->ops[i]);
	}
}

TEST_BETWEEN(sums, world_open, world_close)
{
	run(*state, 40, 0);
}

TEST_BETWEEN(loss, world_open, world_close)
{
	run(*state, 40, 20);
}

TEST_BETWEEN(heavy_loss, world_open, world_close)
{
	run(*state, 10, 200);
}

/* The parent gets a union from each site, however many workers it has. */
TEST_BETWEEN(bytes, world_open, world_close)
{
	struct world *w = *state;
	struct op *op = &w->ops[0];
	uint64_t direct;

	op->dtype = DTYPE_F32;
	op->reduction = REDUCE_SUM;
	op->form = WIRE_NATIVE;
	op->count = ELEMS_MAX;
	op_begin(w, op, 1, 100);
	while (w->left > 0)
		step(w);
	op_end(op);
	direct = w->sent[WORKERS - 1]; /* down to the worker without a site: all results */
	assert_true(w->sent[PARENT] < direct * 3 * 12 / 10);
	assert_true(w->sent[WORKERS] < direct * 2 * 12 / 10 + direct * 12 / 10);
}
