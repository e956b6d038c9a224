// SPDX-License-Identifier: BSD-3-Clause
/*
 * fuzz_packet.c - what packet.c takes apart it puts together again, byte by byte
 *
 * Byte 0 says the direction and whether the header is made valid; the rest is the datagram.
 * An announcement's numbers are also cut (geometry.c), and the cut is checked against its rules.
 */

#include <stddef.h>

#include "ebpf/geometry.h"
#include "tests/flatten.h"
#include "tests/fuzz/fuzz.h"

#define FLAG_TO_WORKER 1
#define FLAG_MEND 2

/* Fields that are sent as 0 and not looked at. */
static void clear_reserved(uint8_t *data)
{
	uint8_t *body = data + WIRE_HEADER_BYTES;

	memset(body + offsetof(struct wire_plan, reserved), 0, 3);
}

static void check_cut(const struct announce *a)
{
	struct geometry_input input = {
		.count = a->count,
		.block_elems = a->block_elems,
		.elem_bytes = 1u << a->dtype % 4,
		.shard_count = a->block_count % 300u,
		.payload =
			WIRE_PAYLOAD_MIN + a->op_slot % (WIRE_PAYLOAD_MAX - WIRE_PAYLOAD_MIN + 1),
		.converted = a->form != WIRE_NATIVE,
		.scatter = a->flags & WIRE_SCATTER ? a->op_slot % 5000u : 0,
	};
	struct geometry cut;
	const struct geometry_part *part = &cut.one;
	const struct geometry_frames *f = &part->frames;
	struct geometry_segment segment;
	uint32_t frames, last, index;

	if (!geometry_compute(&input, &cut))
		return;
	segment = geometry_segment(&cut, a->segment % cut.segment_count);
	frames = geometry_frame_count(f, segment.block_count);
	assert(segment.block_count <= part->segment_blocks &&
	       part->segment_blocks <= WIRE_SEGMENT_BLOCKS_MAX);
	assert((segment.block_count > 0) == (cut.block_count > 0));
	assert(f->frame_blocks >= 1 &&
	       part->segment_blocks / 8 + WIRE_ANNOUNCE_BYTES <= cut.payload_bytes);
	assert((uint64_t)f->frame_blocks * f->part_bytes <= cut.payload_bytes);
	assert(frames >= 1 && (uint64_t)frames * f->frame_blocks >= segment.block_count);
	last = geometry_part_bytes(f, f->block_parts - 1);
	assert(last > 0 && last <= f->part_bytes);
	assert((f->block_parts - 1) * f->part_bytes + last == f->block_bytes);

	/* Every block has one place, and the way there leads back. */
	index = segment.block_count > 0 ? (uint32_t)(a->tag % segment.block_count) : 0;
	for (uint32_t shard = 0; shard < cut.shard_count; shard++) {
		uint64_t block = geometry_block(&cut, &segment, shard, index);
		struct geometry_tile tile = geometry_tile(&segment, block);

		assert(tile.columns <= part->tile_columns && tile.rows <= 1);
		assert((tile.rows > 0) == (block < part->block_count));
		if (tile.rows > 0)
			assert(deal_shard(cut.shard_count, block) == shard &&
			       tile.first >= segment.first &&
			       tile.first + tile.columns <= segment.first + part->count &&
			       segment.first + part->count <= input.count);
	}
	assert(geometry_eager_channel(a->tag, input.shard_count) < input.shard_count);
}

/* Put the body together from what was read; false when the kind's parser refused it. */
static bool put_body(const struct packet *packet, uint8_t *data, struct packet_out *out)
{
	struct announce announce;
	struct status status;
	struct plan plan;

	switch (packet->kind) {
	case WIRE_ANNOUNCE:
		if (announce_parse(packet, &announce) != WIRE_DROP_NONE)
			return false;
		check_cut(&announce);
		packet_put_announce(out, &announce);
		packet_point(out, announce.set.data, announce.set.bytes);
		packet_point(out, announce.set.blocks, announce.set.blocks_bytes);
		return true;
	case WIRE_PLAN:
		if (plan_parse(packet, &plan) != WIRE_DROP_NONE)
			return false;
		clear_reserved(data);
		packet_put_plan(out, &plan);
		packet_point(out, plan.set.data, plan.set.bytes);
		packet_point(out, plan.set.blocks, plan.set.blocks_bytes);
		return true;
	case WIRE_STATUS:
	case WIRE_STATUS_BACK:
		if (status_parse(packet, &status) != WIRE_DROP_NONE)
			return false;
		memset(data + WIRE_HEADER_BYTES + offsetof(struct wire_status, reserved), 0,
		       sizeof(((struct wire_status *)data)->reserved));
		packet_put_status(out, &status);
		return true;
	default:
		packet_point(out, packet->body, packet->body_bytes);
		return true;
	}
}

static void check_same(const struct packet *packet, uint8_t *data, uint32_t bytes)
{
	struct wire_header head = {
		.kind = packet->kind,
		.channel = packet->channel,
		.worker = packet->worker,
		.seal = packet->token,
		.frame = packet->frame,
		.edge = packet->edge,
		.number = packet->number,
	};
	struct packet_out out;
	uint8_t *again;

	packet_begin(&out, &head);
	if (!put_body(packet, data, &out))
		return;
	assert(out.bytes == bytes);
	assert(packet_body_bytes(&out) == bytes - out.pieces[0].iov_len);
	again = malloc(bytes);
	assert(again != NULL);
	packet_flatten(&out, again);
	assert(memcmp(again, data, bytes) == 0);
	free(again);
}

static void mend(uint8_t *data, bool to_worker)
{
	static const uint8_t kinds[2][8] = {
		{WIRE_ANNOUNCE, WIRE_PUSH, WIRE_STATUS, WIRE_KNOCK, WIRE_ANNOUNCE, WIRE_STATUS,
	         WIRE_ANNOUNCE, WIRE_STATUS},
		{WIRE_PLAN, WIRE_RESULT, WIRE_STATUS_BACK, WIRE_KNOCKED, WIRE_PROBE, WIRE_PLAN,
	         WIRE_STATUS_BACK, WIRE_PLAN},
	};

	data[0] = WIRE_MAGIC & 0xff;
	data[1] = WIRE_MAGIC >> 8;
	data[2] = WIRE_VERSION;
	data[3] = kinds[to_worker][data[3] % 8];
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t input_bytes)
{
	uint32_t bytes = input_bytes > 0 ? (uint32_t)input_bytes - 1 : 0;
	struct packet packet, other;
	enum wire_drop drop;
	bool to_worker;
	uint8_t *data;

	if (input_bytes == 0)
		return 0;
	to_worker = input[0] & FLAG_TO_WORKER;
	data = exact_copy(input + 1, bytes);
	if ((input[0] & FLAG_MEND) && bytes >= 4)
		mend(data, to_worker);
	drop = packet_parse(data, bytes, to_worker, &packet);
	assert(strcmp(drop_name(drop), "?") != 0);
	if (drop == WIRE_DROP_NONE) {
		assert(packet.body == data + WIRE_HEADER_BYTES &&
		       packet.body_bytes == bytes - WIRE_HEADER_BYTES);
		assert(packet_parse(data, bytes, !to_worker, &other) == WIRE_DROP_KIND);
		check_same(&packet, data, bytes);
	}
	free(data);
	return 0;
}
