// SPDX-License-Identifier: BSD-3-Clause
/*
 * channel_plan.c - operations: announcements, agreement between workers, unions
 *
 * PROTOCOL.md, sections 6 and 7. A worker's operation slot and generation distinguish a late
 * duplicate from a new use of the same tag.
 */

#include "aggregator/channel/channel_state.h"
#include "bitmap/coded.h"

struct segment *plan_segment_of(const struct channel *channel, const struct operation *op,
                                uint32_t number)
{
	uint32_t ahead = channel->config.segments_ahead;

	return &channel->segments[(op - channel->ops) * ahead + number % ahead];
}

static void segment_clear(const struct channel *channel, struct segment *segment, uint32_t number)
{
	segment->state = SEGMENT_IDLE;
	segment->number = number;
	segment->joined_count = 0;
	memset(segment->joined, 0, channel->rank_words * 8);
}

void plan_reset(struct channel *channel, struct operation *op)
{
	op->used = false;
	op->segments_done = 0;
	op->bound_count = 0;
	memset(op->bound, 0, channel->rank_words * 8);
	for (uint32_t i = 0; i < channel->config.segments_ahead; i++) {
		struct segment *segment = plan_segment_of(channel, op, i);

		segment->op = (uint32_t)(op - channel->ops);
		segment_clear(channel, segment, i);
	}
}

/* ---- checks, and agreement ---- */

/* 9.1: "f32 with sum or average may travel in another type"; 9.1: "16 bits: at most 256 workers" */
static bool form_possible(const struct channel *channel, const struct announce *a)
{
	/* A site's sums of 8 or 16 bits would be scaled once there, and once at the parent. */
	if (channel->config.sited && (a->form == WIRE_FIXED8 || a->form == WIRE_FIXED16))
		return false;
	switch (a->form) {
	case WIRE_NATIVE:
		return true;
	case WIRE_FIXED8:
		if (channel->config.worker_count > WIRE_FIXED8_WORKERS_MAX)
			return false;
		break;
	case WIRE_BF16:
	case WIRE_FIXED32:
	case WIRE_FIXED16:
		break;
	default:
		return false;
	}
	return a->dtype == DTYPE_F32 && a->reduction <= REDUCE_AVG;
}

/* Bytes of a block in the type in which it travels. */
static uint32_t block_bytes_of(const struct announce *a)
{
	return a->block_elems * dtype_bytes(dtype_in_form(a->form, a->dtype));
}

/* Sections 4.3 and 4.4. */
static bool segment_possible(const struct channel *channel, const struct announce *a)
{
	const uint32_t block_bytes = block_bytes_of(a), payload = channel->config.payload;

	if (!(a->flags & WIRE_EAGER))
		return a->block_count <= geometry_segment_blocks(block_bytes, payload);
	return a->segment_count <= WIRE_EAGER_SEGMENTS && a->form == WIRE_NATIVE &&
	       a->block_count <= geometry_eager_blocks(block_bytes, dtype_bytes(a->dtype), payload);
}

/* Shares have equally many segments. 4.5: "If it is eager (4.4), or count is 0, or N is 1, it is cut like an allreduce" */
static uint32_t shares_of(const struct channel *channel, const struct announce *a)
{
	bool shared = (a->flags & WIRE_SCATTER) && !(a->flags & WIRE_EAGER) && a->count > 0;

	return shared ? channel->config.worker_count : 1;
}

/* Returns the first field that is impossible whatever the others announce, and its value; or 0. */
static uint16_t first_impossible(const struct channel *channel, const struct announce *a,
                                 uint64_t *value)
{
	*value = a->dtype;
	if (a->dtype < 1 || a->dtype > DTYPE_COUNT)
		return WIRE_FIELD_DTYPE;
	*value = a->reduction;
	if (a->reduction < 1 || a->reduction > REDUCE_COUNT)
		return WIRE_FIELD_REDUCTION;
	*value = a->form;
	if (!form_possible(channel, a))
		return WIRE_FIELD_FORM;
	*value = a->block_elems;
	if (!segment_possible(channel, a))
		return WIRE_FIELD_BLOCK;
	*value = a->segment_count;
	if (a->segment >= a->segment_count || a->segment_count % shares_of(channel, a) != 0)
		return WIRE_FIELD_LAYOUT;
	*value = a->op_slot;
	if (a->generation == 0 || a->op_slot >= channel->config.op_slots)
		return WIRE_FIELD_SLOT;
	*value = (uint64_t)a->exponent;
	if (a->form >= WIRE_FIXED32 && !(a->flags & WIRE_NONFINITE) &&
	    !exponent_possible(a->exponent))
		return WIRE_FIELD_EXPONENT;
	return 0;
}

/* 6.4: "in the order scatter, count, dtype, reduction, form, elements of a block, layout"; 0: they agree. */
static uint16_t first_difference(const struct announce *a, const struct announce *b,
                                 struct wire_mismatch *out)
{
	bool same_segment = a->segment == b->segment;
	const struct {
		uint16_t field;
		uint64_t a, b;
	} fields[] = {
		{WIRE_FIELD_SCATTER, (a->flags & WIRE_SCATTER) != 0,
	         (b->flags & WIRE_SCATTER) != 0},
		{WIRE_FIELD_COUNT, a->count, b->count},
		{WIRE_FIELD_DTYPE, a->dtype, b->dtype},
		{WIRE_FIELD_REDUCTION, a->reduction, b->reduction},
		{WIRE_FIELD_FORM, a->form, b->form},
		{WIRE_FIELD_BLOCK, a->block_elems, same_segment ? b->block_elems : a->block_elems},
		{WIRE_FIELD_LAYOUT, a->layout, b->layout},
		/* Workers that keep the protocol agree here, because their layouts are the same. */
		{WIRE_FIELD_LAYOUT, a->segment_count, b->segment_count},
		{WIRE_FIELD_LAYOUT, a->flags & WIRE_EAGER, b->flags & WIRE_EAGER},
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (fields[i].a == fields[i].b)
			continue;
		out->field = fields[i].field;
		out->value_a = fields[i].a;
		out->value_b = fields[i].b;
		return fields[i].field;
	}
	return 0;
}

/* 11.1: "The worker that sent it gets a PLAN with its tag and status 1" */
static void announce_refuse(struct channel *channel, const struct announce *a,
                            const struct wire_mismatch *mismatch)
{
	channel->stats.mismatches++;
	count_drop(channel, WIRE_DROP_OPERATION);
	reply_put(channel, &(struct reply){.kind = REPLY_REFUSAL,
	                                   .rank = mismatch->rank_b,
	                                   .refusal = {.tag = a->tag, .mismatch = *mismatch}});
}

/* 11.1: "Both this worker: impossible" */
static void announce_impossible(struct channel *channel, const struct announce *a, uint16_t rank,
                                uint16_t field, uint64_t value)
{
	announce_refuse(channel, a,
	                &(struct wire_mismatch){.field = field,
	                                        .rank_a = rank,
	                                        .rank_b = rank,
	                                        .value_a = value,
	                                        .value_b = value});
}

/* Refuses an announcement that disagrees with the first one of its operation. */
static bool announce_agrees(struct channel *channel, const struct operation *op,
                            const struct announce *a, uint16_t rank)
{
	struct wire_mismatch mismatch = {.rank_a = op->asked_by, .rank_b = rank};

	if (first_difference(&op->asked, a, &mismatch) == 0)
		return true;
	announce_refuse(channel, a, &mismatch);
	return false;
}

/* ---- operations ---- */

/* 6.3: "joins the operation of its tag that the worker has not joined yet, or begins one" in a free entry; or NULL. */
static struct operation *op_for_tag(struct channel *channel, uint64_t tag, uint16_t rank)
{
	struct operation *free_op = NULL;

	for (uint32_t i = 0; i < channel->config.op_slots; i++) {
		struct operation *op = &channel->ops[i];

		if (!op->used)
			free_op = free_op != NULL ? free_op : op;
		else if (op->asked.tag == tag && !bit_test(op->bound, rank))
			return op;
	}
	return free_op;
}

static void op_start(struct channel *channel, struct operation *op, const struct announce *a,
                     uint16_t rank, uint64_t now_us)
{
	op->used = true;
	op->serial = ++channel->op_serial;
	op->asked = *a;
	op->asked.set = (struct packet_set){0};
	op->asked_by = rank;
	op->started_us = now_us;
	channel->ops_used++;
}

/*
 * The operation of an announcement. NULL, counted, when the packet is refused, finds no room or is
 * late. 6.2: "if its generation is older than the slot's, or equal to it when that operation is
 * over".
 */
static struct operation *op_bind(struct channel *channel, const struct announce *a, uint16_t rank,
                                 uint64_t now_us)
{
	struct bind *bind = &channel->binds[(size_t)rank * channel->config.op_slots + a->op_slot];
	struct operation *op = &channel->ops[bind->op];
	bool live = bind->generation != 0 && op->used && op->serial == bind->op_serial;

	if (bind->generation != 0 && !frame_before(bind->generation, a->generation)) {
		if (live && bind->generation == a->generation)
			return op;
		count_drop(channel, WIRE_DROP_STALE);
		return NULL;
	}
	if (live) {
		announce_impossible(channel, a, rank, WIRE_FIELD_SLOT, a->op_slot);
		return NULL;
	}
	op = op_for_tag(channel, a->tag, rank);
	if (op == NULL) {
		count_drop(channel, WIRE_DROP_FULL);
		return NULL;
	}
	if (!op->used)
		op_start(channel, op, a, rank, now_us);
	bind->generation = a->generation;
	bind->op = (uint32_t)(op - channel->ops);
	bind->op_serial = op->serial;
	bit_set(op->bound, rank);
	op->bound_count++;
	watch_bound(channel, op, rank, now_us);
	channel->members[rank].progress_us = now_us;
	return op;
}

/* ---- planning ---- */

/* The sum of a segment without frames. */
static struct sum eager_sum(const struct channel *channel, struct segment *segment)
{
	return sum_of(channel, segment, segment->frames.block_bytes, segment->block_count,
	              eager_sums(channel, segment));
}

static void eager_finish(const struct channel *channel, struct segment *segment, uint32_t words)
{
	const struct sum sum = eager_sum(channel, segment);
	uint64_t all_have[SEGMENT_WORDS];

	if (sum_sees_zeros(&sum)) {
		segment_all_have(channel, segment, 0, words, all_have);
		sum_add_zeros(&sum, all_have);
	}
	segment->eager_bytes = sum_finish(&sum, segment->united, channel->config.worker_count);
}

/* Adds up what the workers have announced. */
static void unite(struct channel *channel, struct segment *segment, uint32_t words)
{
	segment->union_count = 0;
	for (uint32_t i = 0; i < words; i++) {
		uint64_t word = 0;

		for (uint32_t rank = 0; rank < channel->config.worker_count; rank++) {
			uint64_t own = segment_bits(channel, segment, rank)[i];

			word |= own;
			channel->stats.blocks_owned += (uint32_t)__builtin_popcountll(own);
		}
		segment->united[i] = word;
		segment->union_count += (uint32_t)__builtin_popcountll(word);
	}
}

/* 7: "Segments are planned in the order in which they become complete" */
void plan_number(struct channel *channel, struct segment *segment, uint64_t now_us)
{
	const struct operation *op = &channel->ops[segment->op];

	segment->plan_flags = segment->nonfinite ? WIRE_NONFINITE : 0;
	if (op_is_eager(op))
		segment->plan_flags |= WIRE_EAGER;
	if (segment->union_count == 0)
		segment->plan_flags |= WIRE_NONE;
	else if (segment->union_count == segment->block_count)
		segment->plan_flags |= WIRE_ALL;
	segment->set_bytes = 0;
	if (!(segment->plan_flags & (WIRE_NONE | WIRE_ALL)))
		segment->set_bytes =
			(uint32_t)bits_write(segment->united, segment->block_count, segment->set);
	/* 7: "A plan that needs no frames (no union block, or eager) takes one hollow frame number" */
	segment->hollow = op_is_eager(op) || segment->union_count == 0;
	segment->frame_count =
		segment->hollow ? 1 : geometry_frame_count(&segment->frames, segment->union_count);
	channel->stats.blocks += segment->block_count;
	channel->stats.tensor_bytes += (uint64_t)segment->block_count * segment->frames.block_bytes;
	channel->stats.blocks_nonzero += segment->union_count;
	if (channel->base == channel->planned)
		channel->progress_us = now_us;
	segment->state = SEGMENT_PLANNED;
	segment->first = channel->planned;
	channel->planned += segment->frame_count;
	channel->order.places[channel->order.tail++ & (channel->segment_count - 1)] =
		(uint32_t)(segment - channel->segments);
	slot_open_more(channel);
}

/* All have announced it. A site asks its parent for the plan. */
static void segment_complete(struct channel *channel, struct segment *segment, uint64_t now_us)
{
	uint32_t words = (segment->block_count + 63) / 64;

	unite(channel, segment, words);
	segment->eager_bytes = 0;
	if (op_is_eager(&channel->ops[segment->op]))
		eager_finish(channel, segment, words);
	if (!channel->config.sited) {
		plan_number(channel, segment, now_us);
		return;
	}
	segment->state = SEGMENT_OFFERED;
	channel->offered++;
}

/* ---- announcements ---- */

/*
 * Reads an announcement's set into `bits` and counts its blocks. Returns false when set, blocks and
 * lengths do not match. Then `bits` holds garbage, which nobody reads because the worker has not
 * joined.
 */
static bool set_take(const struct announce *a, uint32_t block_bytes, uint64_t *bits,
                     uint32_t *count)
{
	uint32_t words = (a->block_count + 63u) / 64;

	if (a->flags & WIRE_ALL)
		bitmap_fill(bits, a->block_count);
	else if (a->flags & WIRE_NONE)
		memset(bits, 0, words * 8);
	else if (bits_read(a->set.data, a->set.bytes, bits, a->block_count) != 0)
		return false;
	*count = (uint32_t)bitmap_set_count(bits, words);
	return a->set.blocks_bytes == (a->flags & WIRE_EAGER ? *count * block_bytes : 0);
}

/* The first announcement defines the segment. The others agree, because their layouts do. */
static bool segment_cut(const struct channel *channel, struct segment *segment,
                        const struct announce *a, uint64_t now_us)
{
	uint32_t block_bytes = block_bytes_of(a), shares = shares_of(channel, a);

	if (segment->state == SEGMENT_GATHERING)
		return a->block_count == segment->block_count &&
		       block_bytes == segment->frames.block_bytes;
	segment->block_count = a->block_count;
	segment->frames = geometry_frames(block_bytes, channel->config.payload);
	segment->receiver = WIRE_EVERYONE;
	/* 4.5: "Segment n belongs to share floor(n / M)" */
	if (shares > 1)
		segment->receiver = (uint16_t)(a->segment / (a->segment_count / shares));
	segment->exponent = WIRE_EXPONENT_NONE;
	segment->nonfinite = false;
	segment->since_us = now_us;
	return true;
}

/* 6.2: "An aggregator plans at most 2^30 frames beyond base: an announcement that may need more is dropped" */
static bool frames_fit(const struct channel *channel, const struct segment *segment)
{
	uint32_t most = geometry_frame_count(&segment->frames, segment->block_count);

	return channel->planned - channel->base + most <= FRAMES_AHEAD_MAX;
}

static void segment_join(struct channel *channel, struct segment *segment, const struct announce *a,
                         uint16_t rank, uint64_t now_us)
{
	struct operation *op = &channel->ops[segment->op];
	uint64_t *bits = segment_bits(channel, segment, rank);
	uint32_t own;

	if (!segment_cut(channel, segment, a, now_us)) {
		announce_refuse(channel, a,
		                &(struct wire_mismatch){.field = WIRE_FIELD_LAYOUT,
		                                        .rank_a = op->asked_by,
		                                        .rank_b = rank});
		return;
	}
	if (!frames_fit(channel, segment)) {
		count_drop(channel, WIRE_DROP_FULL);
		return;
	}
	if (!set_take(a, segment->frames.block_bytes, bits, &own)) {
		count_drop(channel, WIRE_DROP_LENGTH);
		return;
	}
	segment->state = SEGMENT_GATHERING;
	if (a->exponent > segment->exponent)
		segment->exponent = a->exponent;
	segment->nonfinite = segment->nonfinite || (a->flags & WIRE_NONFINITE);
	/* 4.4: "They travel inside their announcements"; they are added at once, in any order. */
	if (op_is_eager(op)) {
		struct sum sum = eager_sum(channel, segment);

		sum_add(&sum, bits, own, a->set.blocks, segment->joined_count == 0);
	}
	bit_set(segment->joined, rank);
	segment->joined_count++;
	channel->members[rank].progress_us = now_us;
	/* 7: "When the last worker has announced a segment, the segment gets the next frame numbers of the channel" */
	if (segment->joined_count == channel->speaker_count)
		segment_complete(channel, segment, now_us);
}

/* 6.5: "if there is one and the worker's ack has not passed its frames" */
static void plan_again(struct channel *channel, const struct segment *segment, uint16_t rank)
{
	count_drop(channel, WIRE_DROP_DUPLICATE);
	if (segment->state == SEGMENT_PLANNED &&
	    frame_before(channel->members[rank].ack, segment->first + segment->frame_count))
		reply_put_plan(channel, segment, rank);
}

void plan_announce(struct channel *channel, const struct packet *packet, uint64_t now_us)
{
	struct operation *op;
	struct segment *segment;
	struct announce a;
	enum wire_drop drop = announce_parse(packet, &a);
	uint16_t rank = packet->worker, field;
	uint64_t value;

	if (drop != WIRE_DROP_NONE) {
		count_drop(channel, drop);
		return;
	}
	field = first_impossible(channel, &a, &value);
	if (field != 0) {
		announce_impossible(channel, &a, rank, field, value);
		return;
	}
	op = op_bind(channel, &a, rank, now_us);
	if (op == NULL)
		return;
	if (a.tag != op->asked.tag) {
		announce_impossible(channel, &a, rank, WIRE_FIELD_SLOT, a.op_slot);
		return;
	}
	if (!announce_agrees(channel, op, &a, rank))
		return;
	segment = plan_segment_of(channel, op, a.segment);
	if (frame_before(a.segment, segment->number))
		count_drop(channel, WIRE_DROP_STALE);
	else if (a.segment != segment->number)
		announce_impossible(channel, &a, rank, WIRE_FIELD_LAYOUT, a.segment);
	else if (segment->state > SEGMENT_GATHERING || bit_test(segment->joined, rank))
		plan_again(channel, segment, rank);
	else
		segment_join(channel, segment, &a, rank, now_us);
}

/* ---- the end of segments ---- */

void plan_release(struct channel *channel, uint64_t now_us)
{
	while (channel->order.head != channel->order.tail) {
		struct segment *segment = segment_planned(channel, channel->order.head);
		struct operation *op = &channel->ops[segment->op];

		if (frame_before(channel->base, segment->first + segment->frame_count))
			return;
		/*
		 * All workers have acknowledged it before it was sent, so nobody asks for it, and
		 * its place is reused.
		 */
		if (channel->plans_sent == channel->order.head)
			channel->plans_sent++;
		channel->order.head++;
		segment_clear(channel, segment, segment->number + channel->config.segments_ahead);
		if (++op->segments_done < op->asked.segment_count)
			continue;
		watch_finished(channel, op, now_us);
		plan_reset(channel, op);
		channel->ops_used--;
	}
}
