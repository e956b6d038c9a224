// SPDX-License-Identifier: BSD-3-Clause
/*
 * test_packet.c - docs/vectors/packets.txt to structs and back
 *
 * What the code makes of a packet is printed in the form of that file and compared as text; then
 * the packet is built again and compared as bytes.
 */

#include <inttypes.h>

#include "tests/flatten.h"
#include "tests/unit/test_packet.h"

/* ---- printing what was read ---- */

static void put(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(char *text, const char *format, ...)
{
	size_t used = strlen(text);
	va_list args;

	va_start(args, format);
	vsnprintf(text + used, TEXT_BYTES - used, format, args);
	va_end(args);
}

static void put_hex(char *text, const char *name, const uint8_t *bytes, uint32_t count)
{
	if (count == 0)
		return;
	put(text, "%s ", name);
	for (uint32_t i = 0; i < count; i++)
		put(text, "%02x", bytes[i]);
	put(text, "\n");
}

static void put_header(char *text, const struct packet *p)
{
	put(text, "kind 0x%02x\nchannel %u\nworker %u\ntoken 0x%016" PRIx64 "\nframe %u\n", p->kind,
	    p->channel, p->worker, p->token, p->frame);
	if (p->kind == WIRE_KNOCK || p->kind == WIRE_KNOCKED)
		put(text, "%s %u\nnumber 0x%" PRIx64 "\n", p->kind == WIRE_KNOCK ? "ack" : "base",
		    p->edge, p->number);
	else if (p->kind & WIRE_TO_WORKER)
		put(text, "base %u\nwindow %u\nsequence %u\nplanned %u\n", p->edge, p->window,
		    p->sequence, p->planned);
	else
		put(text, "ack %u\nwindow %u\nsequence %u\npushed %u\n", p->edge, p->window,
		    p->sequence, p->pushed);
}

static void put_announce(char *text, const struct packet *p)
{
	struct announce a;

	assert_int_equal(announce_parse(p, &a), WIRE_DROP_NONE);
	put(text,
	    "tag 0x%016" PRIx64 "\ncount %" PRIu64 "\nlayout 0x%016" PRIx64
	    "\nsegment %u\nsegment_count %u\ngeneration %u\n",
	    a.tag, a.count, a.layout, a.segment, a.segment_count, a.generation);
	put(text,
	    "op_slot %u\nblock_count %u\nblock_last %u\nexponent %d\ndtype %u\nreduction %u\n"
	    "form %u\nflags 0x%02x\n",
	    a.op_slot, a.block_count, a.block_elems - 1, a.exponent, a.dtype, a.reduction, a.form,
	    a.flags);
	put_hex(text, "set", a.set.data, a.set.bytes);
	put_hex(text, "blocks", a.set.blocks, a.set.blocks_bytes);
}

static void put_plan(char *text, const struct packet *p)
{
	struct plan plan;

	assert_int_equal(plan_parse(p, &plan), WIRE_DROP_NONE);
	put(text,
	    "tag 0x%016" PRIx64 "\nsegment %u\nframe_count %u\nstatus %u\nexponent %d\n"
	    "flags 0x%02x\n",
	    plan.tag, plan.segment, plan.frame_count, plan.status, plan.exponent, plan.flags);
	if (plan.status == WIRE_MISMATCH) {
		put(text, "value_a %llu\nvalue_b %llu\nrank_a %u\nrank_b %u\nfield %u\n",
		    plan.mismatch.value_a, plan.mismatch.value_b, plan.mismatch.rank_a,
		    plan.mismatch.rank_b, plan.mismatch.field);
		return;
	}
	put_hex(text, "set", plan.set.data, plan.set.bytes);
	put_hex(text, "sums", plan.set.blocks, plan.set.blocks_bytes);
}

static void put_status(char *text, const struct packet *p)
{
	struct status status;

	assert_int_equal(status_parse(p, &status), WIRE_DROP_NONE);
	assert_int_equal(status.first, p->frame);
	put(text, "stamp %u\nflags 0x%02x\nheld %u\nmarked %u\n", status.stamp, status.asks,
	    status.held, status.marked);
	put_hex(text, "words", (const uint8_t *)status.words, status.word_count * 8);
}

static void put_packet(char *text, const struct packet *p)
{
	put_header(text, p);
	switch ((enum wire_kind)p->kind) {
	case WIRE_ANNOUNCE:
		put_announce(text, p);
		return;
	case WIRE_PLAN:
		put_plan(text, p);
		return;
	case WIRE_STATUS:
	case WIRE_STATUS_BACK:
		put_status(text, p);
		return;
	case WIRE_PUSH:
	case WIRE_RESULT:
		put_hex(text, "data", p->body, p->body_bytes);
		return;
	case WIRE_KNOCK:
	case WIRE_KNOCKED:
	case WIRE_PROBE:
		put_hex(text, "padding", p->body, p->body_bytes);
		return;
	}
}

/* ---- building it again ---- */

static void build_header(const struct packet *p, struct packet_out *out)
{
	struct wire_header head = {
		.kind = p->kind,
		.channel = p->channel,
		.worker = p->worker,
		.seal = p->token,
		.frame = p->frame,
		.edge = p->edge,
		.number = p->number,
	};

	packet_begin(out, &head);
}

static void build_packet(const struct packet *p, struct packet_out *out)
{
	struct status status;
	struct announce announce;
	struct plan plan;

	build_header(p, out);
	switch ((enum wire_kind)p->kind) {
	case WIRE_ANNOUNCE:
		announce_parse(p, &announce);
		packet_put_announce(out, &announce);
		packet_point(out, announce.set.data, announce.set.bytes);
		packet_point(out, announce.set.blocks, announce.set.blocks_bytes);
		return;
	case WIRE_PLAN:
		plan_parse(p, &plan);
		packet_put_plan(out, &plan);
		packet_point(out, plan.set.data, plan.set.bytes);
		packet_point(out, plan.set.blocks, plan.set.blocks_bytes);
		return;
	case WIRE_STATUS:
	case WIRE_STATUS_BACK:
		status_parse(p, &status);
		packet_put_status(out, &status);
		return;
	default:
		packet_point(out, p->body, p->body_bytes);
	}
}

TEST(vectors)
{
	for (size_t i = 0; i < vector_count; i++) {
		const struct vector *v = &vectors[i];
		char text[TEXT_BYTES] = "";
		uint8_t bytes[PACKET_BYTES];
		struct packet_out out;
		struct packet p;

		print_message("%s\n", v->name);
		assert_int_equal(vector_parse(v, &p), WIRE_DROP_NONE);
		put_packet(text, &p);
		assert_string_equal(text, v->text);
		build_packet(&p, &out);
		assert_int_equal(out.bytes, v->byte_count);
		packet_flatten(&out, bytes);
		assert_memory_equal(bytes, v->bytes, v->byte_count);
	}
}

/* Every kind has a vector. */
TEST(kinds)
{
	const uint8_t kinds[] = {1, 2, 3, 4, 0x81, 0x82, 0x83, 0x84, 0x85};

	for (size_t k = 0; k < sizeof(kinds); k++) {
		bool found = false;

		for (size_t i = 0; i < vector_count; i++)
			found = found || vectors[i].bytes[3] == kinds[k];
		assert_true(found);
	}
}

/* ---- pieces ---- */

/* Neighbours in memory become one piece, but never one with the head. */
TEST(pieces)
{
	static uint8_t memory[64];
	struct wire_header head = {.kind = WIRE_PUSH};
	struct packet_out out;

	packet_begin(&out, &head);
	packet_point(&out, out.head + 32, 0);
	assert_int_equal(out.piece_count, 1);
	packet_point(&out, out.head + 32, 8);
	assert_int_equal(out.piece_count, 2);
	packet_begin(&out, &head);
	packet_point(&out, memory, 8);
	packet_point(&out, memory + 8, 4);
	packet_point(&out, memory + 16, 4);
	packet_point(&out, memory + 4, 4);
	packet_point(&out, memory + 50, 0);
	assert_int_equal(out.piece_count, 4);
	assert_int_equal(out.pieces[1].iov_len, 12);
	assert_ptr_equal(out.pieces[2].iov_base, memory + 16);
	assert_ptr_equal(out.pieces[3].iov_base, memory + 4);
	assert_int_equal(out.bytes, 32 + 12 + 4 + 4);
	assert_int_equal(packet_body_bytes(&out), 20);
}

/* As many pieces as there is room for; the longest STATUS fits the head. */
TEST(most_pieces)
{
	static uint8_t memory[2 * PACKET_POINTS_MAX];
	struct status status = {.word_count = WIRE_STATUS_WORDS_MAX, .words = {1}};
	struct wire_header head = {.kind = WIRE_STATUS};
	struct packet_out out;

	packet_begin(&out, &head);
	packet_put_status(&out, &status);
	for (uint32_t i = 0; i < PACKET_POINTS_MAX; i++)
		packet_point(&out, memory + (size_t)i * 2, 1);
	assert_int_equal(out.piece_count, PACKET_POINTS_MAX + 1);
	assert_int_equal(out.bytes, 32 + 16 + 128 + PACKET_POINTS_MAX);
}

/* As many frames as have room, in ascending order; numbers wrap. */
TEST(listed)
{
	struct status status = {0};

	assert_true(status_list(&status, UINT32_MAX));
	assert_true(status.first == UINT32_MAX && status.word_count == 1 && status.words[0] == 1);
	assert_true(status_list(&status, 0) && status_list(&status, 64));
	assert_true(status.word_count == 2 && status.words[0] == 3 && status.words[1] == 2);
	assert_false(status_list(&status, 1023));
	assert_true(status_list(&status, 1022));
	assert_true(status.word_count == 16 && status.words[15] == UINT64_C(1) << 63);
}

/* ---- numbers ---- */

TEST(before)
{
	assert_true(frame_before(0, 1) && !frame_before(1, 0) && !frame_before(7, 7));
	assert_true(frame_before(UINT32_MAX, 0) && !frame_before(0, UINT32_MAX));
	assert_true(frame_before(5, 5u + INT32_MAX) && !frame_before(5u + INT32_MAX, 5));
	assert_true(sequence_before(0, 1) && !sequence_before(1, 0) && !sequence_before(7, 7));
	assert_true(sequence_before(UINT16_MAX, 0) && !sequence_before(0, UINT16_MAX));
	assert_true(sequence_before(60000, (uint16_t)(60000 + INT16_MAX)));
	assert_false(sequence_before((uint16_t)(60000 + INT16_MAX), 60000));
}

/* The labels, in the order of section 12. */
TEST(drop_names)
{
	const char *const names[] = {
		"none",       "short",           "bad_magic",     "bad_version",
		"bad_kind",   "unknown_channel", "bad_worker",    "bad_seal",
		"bad_length", "closed_frame",    "bad_operation", "stale",
		"duplicate",  "table_full",      "bad_address",
	};

	assert_int_equal(sizeof(names) / sizeof(names[0]), WIRE_DROP_COUNT);
	for (unsigned i = 0; i < WIRE_DROP_COUNT; i++)
		assert_string_equal(drop_name((enum wire_drop)i), names[i]);
	assert_string_equal(drop_name(WIRE_DROP_COUNT), "?");
}

int main(void)
{
	return unit_run(vectors_load, NULL);
}
