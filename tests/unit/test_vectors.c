// SPDX-License-Identifier: BSD-3-Clause
/*
 * test_vectors.c - docs/vectors/: sets, cuts, fixed-point numbers, and whole operations
 *
 * tests/protocol/ reads the same files with an implementation that shares nothing with this one.
 * packets.txt is for test_packet.c.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/channel/channel.h"
#include "bitmap/coded.h"
#include "client/worker/array.h"
#include "client/worker/engine.h"
#include "client/winnow.h"
#include "tests/flatten.h"
#include "tests/unit/test_vectors.h"

static float float_of(const char *bits)
{
	uint32_t word = (uint32_t)strtoul(bits, NULL, 16);
	float value;

	memcpy(&value, &word, sizeof(value));
	return value;
}

/* ---- sets ---- */

static void check_set(struct paragraph *p)
{
	uint8_t bytes[VALUE_BYTES / 2];
	uint32_t count = hex_read(text_of(p, "hex"), bytes);
	uint64_t want[SEGMENT_WORDS] = {0}, found[SEGMENT_WORDS];
	uint32_t blocks = (uint32_t)number_of(p, "blocks");
	uint8_t made[SEGMENT_WORDS * 8];

	if (strcmp(p->kind, "wrong") == 0) {
		assert_int_equal(bits_read(bytes, count, found, blocks), -EINVAL);
		return;
	}
	for (uint32_t i = 0; i < p->count; i++) {
		const char *text = p->lines[i].value;
		char *end;

		if (strcmp(p->lines[i].key, "set") != 0)
			continue;
		for (; *text != '\0'; text = end)
			bit_set(want, strtoull(text, &end, 10));
	}
	assert_int_equal(bits_read(bytes, count, found, blocks), 0);
	assert_memory_equal(found, want, bitmap_word_count(blocks) * 8);
	assert_int_equal(bits_write(want, blocks, made), count);
	assert_memory_equal(made, bytes, count);
}

TEST(sets)
{
	assert_int_equal(paragraphs_each(VECTORS "sets.txt", check_set), 12);
}

/* ---- cuts ---- */

static void check_blocks(const struct geometry *cut, char *text)
{
	uint32_t shard = (uint32_t)strtoul(text, &text, 10);
	struct geometry_segment segment = geometry_segment(cut, (uint32_t)strtoul(text, &text, 10));
	uint32_t index = (uint32_t)strtoul(text, &text, 10);

	for (char *end; *text != '\0'; text = end, index++) {
		uint64_t block = geometry_block(cut, &segment, shard, index);

		block = block < segment.part->block_count ? segment.first_block + block
		                                          : cut->block_count;
		assert_true(block == strtoull(text, &end, 10));
	}
	assert_true(index <= segment.block_count);
}

static bool has(const struct paragraph *p, const char *key)
{
	uint32_t i = 0;

	while (i < p->count && strcmp(p->lines[i].key, key) != 0)
		i++;
	return i < p->count;
}

#define PARTS_MAX 4

/* The parts of the layout, if it has any. Returns their number. */
static uint32_t parts_of(struct paragraph *p, struct geometry_part parts[PARTS_MAX])
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < p->count; i++) {
		char *at = p->lines[i].value;
		uint64_t numbers[4];

		if (strcmp(p->lines[i].key, "part") != 0)
			continue;
		assert_true(count < PARTS_MAX);
		for (uint32_t n = 0; n < 4; n++)
			numbers[n] = strtoull(at, &at, 10);
		parts[count] = (struct geometry_part){.count = numbers[0],
		                                      .columns = numbers[1],
		                                      .tile_rows = (uint32_t)numbers[2],
		                                      .tile_columns = (uint32_t)numbers[3],
		                                      .copies = 1};
		count++;
	}
	return count;
}

static void check_tile(const struct geometry *cut, char *text)
{
	struct geometry_segment segment =
		geometry_segment(cut, (uint32_t)strtoull(text, &text, 10));
	struct geometry_tile tile = geometry_tile(&segment, strtoull(text, &text, 10));

	assert_true(tile.first == strtoull(text, &text, 10));
	assert_true(tile.rows == strtoull(text, &text, 10));
	assert_true(tile.columns == strtoull(text, &text, 10));
}

/* By the document's letters: of a layout of one part. */
static void check_part(const struct paragraph *p, const struct geometry *cut)
{
	const struct geometry_part *part = &cut->one;

	assert_int_equal(part->tile_columns, number_of(p, "b"));
	assert_int_equal(part->frames.block_bytes, number_of(p, "w"));
	assert_true(part->shard_blocks == number_of(p, "G"));
	assert_int_equal(part->segment_blocks, number_of(p, "L"));
	assert_int_equal(part->frames.frame_blocks, number_of(p, "k"));
	assert_int_equal(part->frames.part_bytes, number_of(p, "p"));
	assert_int_equal(part->frames.block_parts, number_of(p, "m"));
	if (has(p, "workers")) {
		assert_int_equal(part->copies, number_of(p, "N"));
		assert_int_equal(part->block_count, number_of(p, "R"));
		assert_int_equal(part->segment_count, number_of(p, "M"));
	}
}

static void check_cut(struct paragraph *p)
{
	struct geometry_part parts[PARTS_MAX];
	struct geometry_input input = {
		.count = number_of(p, "count"),
		.block_elems = (uint32_t)number_of(p, "block_elems"),
		.elem_bytes = (uint32_t)number_of(p, "element_bytes"),
		.shard_count = (uint32_t)number_of(p, "channels"),
		.payload = (uint32_t)number_of(p, "payload"),
		.converted = number_of(p, "form") == WIRE_FIXED32,
		.scatter = has(p, "workers") ? (uint32_t)number_of(p, "workers") : 0,
	};
	struct geometry cut;

	input.part_count = parts_of(p, parts);
	input.parts = input.part_count > 0 ? parts : NULL;
	assert_true(geometry_compute(&input, &cut));
	assert_true(cut.block_count == number_of(p, "T"));
	assert_int_equal(cut.eager, number_of(p, "eager"));
	assert_int_equal(cut.shard_count, number_of(p, "S"));
	assert_int_equal(cut.segment_count, number_of(p, "segments"));
	if (input.parts == NULL)
		check_part(p, &cut);
	for (uint32_t i = 0; i < p->count; i++) {
		struct line *line = &p->lines[i];
		char *rest;
		uint64_t first = strtoull(line->value, &rest, 10), second = strtoull(rest, NULL, 0);

		if (strcmp(line->key, "blocks") == 0)
			check_blocks(&cut, line->value);
		else if (strcmp(line->key, "frames") == 0) /* none: a hollow one */
			assert_int_equal(geometry_frame_count(&cut.one.frames, (uint32_t)first),
			                 first > 0 ? second : 1);
		else if (strcmp(line->key, "block") == 0)
			check_tile(&cut, line->value);
		else if (strcmp(line->key, "layout") == 0)
			assert_true(geometry_layout(&cut, (uint32_t)first, input.shard_count) ==
			            second);
		else if (strcmp(line->key, "channel") == 0)
			assert_int_equal(geometry_eager_channel(first, input.shard_count), second);
	}
}

TEST(cuts)
{
	assert_true(paragraphs_each(VECTORS "cut.txt", check_cut) >= 10);
}

/* ---- fixed point ---- */

static void check_exponent(const struct bitmap_engine *engine, const struct paragraph *p)
{
	const char *text = text_of(p, "values");
	struct bitmap_range range;
	int64_t want = (int64_t)number_of(p, "exponent");
	uint64_t bits;
	float values[8];
	uint32_t count = 0;

	for (; *text != '\0'; text += strcspn(text, " "), text += *text == ' ')
		values[count++] = float_of(text);
	engine->scan_range(&(struct bitmap_tensor){values, count, count, DTYPE_F32}, &bits, &range);
	assert_false(range.nonfinite);
	assert_true(range.exponent == (want == WIRE_EXPONENT_NONE ? BITMAP_EXPONENT_NONE : want));
}

static void check_fixed(const struct bitmap_engine *engine, const struct paragraph *p)
{
	float value, decoded;
	uint32_t world = (uint32_t)number_of(p, "world");
	int shift, lost;
	const char *form = text_of(p, "form");
	enum dtype dtype = strcmp(form, "fixed8") == 0    ? DTYPE_I8
	                   : strcmp(form, "fixed16") == 0 ? DTYPE_I16
	                                                  : DTYPE_I32;
	int32_t number = 0;

	if (strcmp(p->kind, "finish") == 0) {
		int32_t sum = (int32_t)number_of(p, "sum");
		int16_t half = (int16_t)sum;

		engine->finish(&number, dtype == DTYPE_I8 ? (void *)&half : (void *)&sum, 1, dtype,
		               REDUCE_SUM, world);
		assert_int_equal(dtype == DTYPE_I8 ? (int8_t)number : (int16_t)number,
		                 (int32_t)number_of(p, "result"));
		return;
	}
	value = float_of(text_of(p, "value"));
	shift = (int)number_of(p, "s");
	lost = dtype == DTYPE_I32 ? 0 : dtype_headroom(world);
	if (strcmp(p->kind, "number") == 0) {
		engine->fixed_encode(&number, &value, 1, dtype, shift);
		number = dtype == DTYPE_I8    ? (int8_t)number
		         : dtype == DTYPE_I16 ? (int16_t)number
		                              : number;
		assert_int_equal(number, (int32_t)number_of(p, "sent"));
		return;
	}
	number = (int32_t)number_of(p, "sum");
	engine->fixed_decode(&decoded, &number, 1, dtype, shift - lost,
	                     (uint32_t)number_of(p, "divisor"));
	assert_memory_equal(&decoded, &value, sizeof(value));
}

static void check_number(struct paragraph *p)
{
	for (size_t i = 0; bitmap_engines[i] != NULL; i++) {
		if (!bitmap_engines[i]->usable())
			continue;
		if (strcmp(p->kind, "exponent") == 0)
			check_exponent(bitmap_engines[i], p);
		else
			check_fixed(bitmap_engines[i], p);
	}
}

TEST(fixed)
{
	assert_true(paragraphs_each(VECTORS "fixed.txt", check_number) >= 25);
}

/* ---- operations: two engines and a channel, each fed with what the file says ---- */

#define STEPS_MAX 32
#define COUNT_MAX 640
#define TURN_US 100 /* all times of the file are multiples; what is sent arrives one later */
#define TURNS 30

struct step {
	bool by_worker;
	uint32_t rank, us; /* WIRE_EVERYONE: to both */
	int lost;          /* rank that it does not reach, or -1 */
	uint32_t byte_count;
	uint8_t bytes[WIRE_PAYLOAD_MIN];
};

struct replay {
	const struct paragraph *p;
	struct channel *channel;
	struct bitmap_pool *pool;
	struct engine *engines[2];
	struct allreduce tasks[2];
	float send[2][COUNT_MAX], recv[2][COUNT_MAX], want[COUNT_MAX];
	uint32_t submit_us[2], done;
	uint64_t tokens[2], now_us;
	uint32_t step_count, at; /* steps before `at` have been sent */
	struct step steps[STEPS_MAX];
};

static void step_add(struct replay *r, bool by_worker, const char *value)
{
	struct step *step = &r->steps[r->step_count++];

	assert_true(r->step_count <= STEPS_MAX);
	*step = (struct step){.by_worker = by_worker, .lost = -1};
	assert_int_equal(sscanf(value, "%u %u", &step->rank, &step->us), 2);
}

static void line_take(struct replay *r, const struct line *line)
{
	struct step *last = r->step_count > 0 ? &r->steps[r->step_count - 1] : NULL;
	uint32_t rank = (uint32_t)strtoul(line->value, NULL, 10), index;
	const char *value = line->value;
	char bits[16];

	if (strcmp(line->key, "worker") == 0 || strcmp(line->key, "aggregator") == 0)
		step_add(r, line->key[0] == 'w', value);
	else if (strcmp(line->key, "hex") == 0)
		last->byte_count += hex_read(value, last->bytes + last->byte_count);
	else if (strcmp(line->key, "lost") == 0)
		last->lost = (int)rank;
	else if (strcmp(line->key, "token") == 0)
		r->tokens[rank] = strtoull(strchr(value, ' '), NULL, 0);
	else if (strcmp(line->key, "submit") == 0)
		r->submit_us[rank] = (uint32_t)strtoul(strchr(value, ' '), NULL, 10);
	else if (sscanf(value, "%*u %u %15s", &index, bits) == 2 &&
	         strcmp(line->key, "element") == 0)
		r->send[rank][index] = float_of(bits);
	else if (strcmp(line->key, "result") == 0)
		r->want[rank] = float_of(strchr(value, ' ') + 1);
}

static void replay_open(struct replay *r, const struct paragraph *p)
{
	struct channel_config channel = {
		.id = (uint16_t)number_of(p, "channel"),
		.worker_count = 2,
		.payload = (uint32_t)number_of(p, "payload"),
		.window = (uint32_t)number_of(p, "window"),
		.op_slots = (uint32_t)number_of(p, "op_slots"),
		.segments_ahead = (uint32_t)number_of(p, "segments_ahead"),
		.first_frame = (uint32_t)number_of(p, "first_frame"),
		.group_token = number_of(p, "group_token"),
		.tokens = r->tokens,
		.stall_us = UINT64_MAX,
		.engine = bitmap_best(),
	};
	struct stream_config stream = {
		.channel = channel.id,
		.shard_count = 1,
		.world = 2,
		.payload = channel.payload,
		.window = channel.window,
		.window_start = (uint32_t)number_of(p, "window_start"),
		.op_slots = channel.op_slots,
		.segments_ahead = channel.segments_ahead,
		.first_frame = channel.first_frame,
		.group_token = channel.group_token,
		.engine = channel.engine,
	};

	*r = (struct replay){.p = p};
	for (uint32_t i = 0; i < p->count; i++)
		line_take(r, &p->lines[i]);
	assert_int_equal(bitmap_pool_open(channel.engine, 1, &r->pool), 0);
	assert_int_equal(channel_open(&channel, &r->channel), 0);
	for (uint16_t rank = 0; rank < 2; rank++) {
		stream.rank = rank;
		stream.token = r->tokens[rank];
		assert_int_equal(engine_open(&stream, 1, r->pool, &r->engines[rank]), 0);
	}
}

static void replay_close(struct replay *r)
{
	for (uint32_t rank = 0; rank < 2; rank++)
		engine_close(r->engines[rank]);
	channel_close(r->channel);
	bitmap_pool_close(r->pool);
}

static void task_done(struct allreduce *task)
{
	struct replay *r = task->context;

	assert_int_equal(task->status, WINNOW_OK);
	r->done++;
}

static void submit(struct replay *r, uint32_t rank)
{
	r->tasks[rank] = (struct allreduce){
		.send = r->send[rank],
		.recv = r->recv[rank],
		.count = number_of(r->p, "count"),
		.tag = number_of(r->p, "tag"),
		.block_elems = (uint32_t)number_of(r->p, "block_elems"),
		.dtype = (uint8_t)number_of(r->p, "dtype"),
		.reduction = (uint8_t)number_of(r->p, "reduction"),
		.form = (uint8_t)number_of(r->p, "form"),
		.access = &array_access,
		.done = task_done,
		.context = r,
	};
	assert_int_equal(engine_submit(r->engines[rank], &r->tasks[rank], r->now_us), WINNOW_OK);
}

/* It is what the file has next. */
static void sent(struct replay *r, bool by_worker, uint32_t rank, uint32_t us,
                 const struct packet_out *out)
{
	const struct step *want = &r->steps[r->at++];
	uint8_t bytes[WIRE_PAYLOAD_MIN];

	packet_flatten(out, bytes);
	if (r->at > r->step_count || by_worker != want->by_worker || rank != want->rank ||
	    us != want->us || out->bytes != want->byte_count)
		fail_msg("%s %u sends kind %#x at %u us, not step %u", by_worker ? "worker" : "to",
		         rank, bytes[3], us, r->at);
	assert_memory_equal(bytes, want->bytes, want->byte_count);
}

static void pull(struct replay *r, bool by_worker, uint32_t rank, uint32_t us)
{
	uint8_t scratch[WIRE_PAYLOAD_MIN];
	struct packet_out out = {.scratch = scratch};

	if (by_worker) {
		while (engine_work(r->engines[rank], r->now_us))
			;
		while (engine_pull(r->engines[rank], 0, 1, r->now_us, &out))
			sent(r, true, rank, us, &out);
		return;
	}
	while (channel_pull(r->channel, r->now_us, &out))
		sent(r, false, out.dest, us, &out);
}

static void arrive(struct replay *r, const struct step *step, uint32_t us)
{
	struct packet packet;

	assert_int_equal(packet_parse(step->bytes, step->byte_count, !step->by_worker, &packet),
	                 WIRE_DROP_NONE);
	if (step->by_worker) {
		channel_receive(r->channel, &packet, r->now_us);
		pull(r, false, 0, us);
		return;
	}
	for (uint32_t rank = 0; rank < 2; rank++)
		if ((step->rank == rank || step->rank == WIRE_EVERYONE) && step->lost != (int)rank)
			engine_receive(r->engines[rank], 0, &packet, r->now_us);
}

static void replay_run(struct replay *r)
{
	for (uint32_t us = 0; us < TURNS * TURN_US; us += TURN_US) {
		r->now_us = number_of(r->p, "clock") + us;
		for (uint32_t i = 0; i < r->step_count; i++)
			if (r->steps[i].us + TURN_US == us)
				arrive(r, &r->steps[i], us);
		for (uint32_t rank = 0; rank < 2; rank++) {
			if (r->submit_us[rank] == us)
				submit(r, rank);
			pull(r, true, rank, us);
		}
	}
	assert_int_equal(r->at, r->step_count);
	assert_int_equal(r->done, 2);
	assert_true(channel_idle(r->channel));
	for (uint32_t rank = 0; rank < 2; rank++) {
		assert_true(engine_quiet(r->engines[rank]));
		assert_memory_equal(r->recv[rank], r->want, number_of(r->p, "count") * 4);
	}
}

static void check_operation(struct paragraph *p)
{
	static struct replay replay;

	replay_open(&replay, p);
	replay_run(&replay);
	replay_close(&replay);
}

TEST(operations)
{
	assert_true(paragraphs_each(VECTORS "operation.txt", check_operation) >= 2);
}
