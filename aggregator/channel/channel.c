// SPDX-License-Identifier: BSD-3-Clause
/* channel.c - memory, acknowledgements, dispatch, and the order in which packets leave */

#include "aggregator/channel/channel.h"

#include <errno.h>
#include <stdlib.h>

#include "aggregator/channel/channel_impl.h"

/* ---- memory: one block, laid out by the same walk that measures it ---- */

/* For AddressSanitizer the pieces lie apart, so that it sees when one is overrun. */
#ifdef __has_feature
#define HAS_FEATURE(name) __has_feature(name)
#else
#define HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || HAS_FEATURE(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define GAP_BYTES 64
#define POISON(start, bytes) ASAN_POISON_MEMORY_REGION(start, bytes)
#else
#define GAP_BYTES 0
#define POISON(start, bytes) ((void)(start), (void)(bytes))
#endif

struct arena {
	uint8_t *start; /* NULL while measuring */
	size_t used;
};

static void *take(struct arena *arena, size_t count, size_t bytes)
{
	uint8_t *piece = arena->start != NULL ? arena->start + arena->used : NULL;
	size_t room = ((count * bytes + 63) & ~(size_t)63) + GAP_BYTES;

	arena->used += room;
	if (piece != NULL)
		POISON(piece + count * bytes, room - count * bytes);
	return piece;
}

static bool config_valid(const struct channel_config *c)
{
	return c->worker_count >= 1 && c->worker_count <= WIRE_WORKERS_MAX &&
	       c->payload >= WIRE_PAYLOAD_MIN && c->payload <= WIRE_PAYLOAD_MAX && c->window >= 4 &&
	       c->window <= WIRE_WINDOW_MAX && (c->window & (c->window - 1)) == 0 &&
	       c->op_slots >= 1 && c->op_slots <= 1024 && c->segments_ahead >= 1 &&
	       c->segments_ahead <= 64;
}

static uint32_t power_of_two_above(uint32_t value)
{
	uint32_t power = 1;

	while (power < value)
		power *= 2;
	return power;
}

static void lay_out_tables(struct channel *ch, struct arena *arena, const struct channel_config *c)
{
	size_t workers = c->worker_count;

	ch->rank_words = (c->worker_count + 63u) / 64;
	ch->segment_count = power_of_two_above(c->op_slots * c->segments_ahead);
	ch->members = take(arena, workers, sizeof(*ch->members));
	ch->binds = take(arena, workers * c->op_slots, sizeof(*ch->binds));
	ch->ops = take(arena, c->op_slots, sizeof(*ch->ops));
	ch->segments = take(arena, c->op_slots * c->segments_ahead, sizeof(*ch->segments));
	ch->slots = take(arena, c->window, sizeof(*ch->slots));
	ch->order = take(arena, ch->segment_count, sizeof(*ch->order));
	ch->results = take(arena, c->window, sizeof(*ch->results));
	ch->replies = take(arena, REPLIES_MAX, sizeof(*ch->replies));
}

/* While measuring, the tables do not exist yet: their members are not stored. */
static void lay_out_buffers(struct channel *ch, struct arena *arena, const struct channel_config *c)
{
	bool real = arena->start != NULL;
	size_t words = ch->rank_words;

	for (uint32_t i = 0; i < c->op_slots; i++) {
		void *bound = take(arena, words, 8);
		void *eager = take(arena, 2, c->payload);

		if (real) {
			ch->ops[i].bound = bound;
			ch->ops[i].eager = eager;
		}
	}
	for (uint32_t i = 0; i < c->op_slots * c->segments_ahead; i++) {
		void *joined = take(arena, words, 8);
		void *united = take(arena, SEGMENT_WORDS, 8);
		void *bits = take(arena, c->worker_count, SEGMENT_WORDS * 8);

		if (real) {
			ch->segments[i].joined = joined;
			ch->segments[i].united = united;
			ch->segments[i].bits = bits;
		}
	}
	for (uint32_t i = 0; i < c->window; i++) {
		void *came = take(arena, words, 8);
		void *data = take(arena, 2, c->payload);

		if (real) {
			ch->slots[i].came = came;
			ch->slots[i].data = data;
		}
	}
}

size_t channel_memory(const struct channel_config *config)
{
	struct channel measure = {0};
	struct arena arena = {0};

	if (!config_valid(config))
		return 0;
	take(&arena, 1, sizeof(struct channel));
	lay_out_tables(&measure, &arena, config);
	lay_out_buffers(&measure, &arena, config);
	return arena.used;
}

int channel_open(const struct channel_config *config, struct channel **out)
{
	size_t bytes = channel_memory(config);
	struct arena arena = {0};
	struct channel *ch;

	if (bytes == 0)
		return -EINVAL;
	arena.start = aligned_alloc(64, bytes);
	if (arena.start == NULL)
		return -ENOMEM;
	memset(arena.start, 0, bytes);
	ch = take(&arena, 1, sizeof(*ch));
	lay_out_tables(ch, &arena, config);
	lay_out_buffers(ch, &arena, config);

	ch->config = *config;
	ch->config.tokens = NULL;
	ch->base = ch->opened = ch->planned = config->first_frame;
	ch->advertised = ch->base + config->window;
	for (uint32_t i = 0; i < config->worker_count; i++) {
		ch->members[i].token = config->tokens[i];
		ch->members[i].ack = ch->base;
	}
	for (uint32_t i = 0; i < config->op_slots; i++)
		plan_reset(ch, i);
	fast_start(ch);
	*out = ch;
	return 0;
}

void channel_close(struct channel *channel)
{
	free(channel);
}

/* ---- receiving ---- */

/* Does the packet carry the token of the worker that it names? */
static bool knows(struct channel *channel, const struct packet *packet)
{
	if (packet->worker >= channel->config.worker_count) {
		count_drop(channel, WIRE_DROP_WORKER);
		return false;
	}
	if (packet->token != channel->members[packet->worker].token) {
		count_drop(channel, WIRE_DROP_TOKEN);
		return false;
	}
	return true;
}

static void base_update(struct channel *channel, uint64_t now_us)
{
	uint32_t least = UINT32_MAX;

	for (uint32_t i = 0; i < channel->config.worker_count; i++)
		if (channel->members[i].ack - channel->base < least)
			least = channel->members[i].ack - channel->base;
	if (least == 0)
		return;
	channel->base += least;
	channel->progress_us = now_us;
	plan_release(channel, now_us);
	slot_open_more(channel);
}

/* PROTOCOL.md section 8.3. An acknowledgement of what was never open is no news. */
static void ack_take(struct channel *channel, uint32_t rank, uint32_t ack, uint64_t now_us)
{
	struct member *member = &channel->members[rank];
	bool was_last = member->ack == channel->base;

	if (!frame_before(member->ack, ack) || frame_before(channel->opened, ack))
		return;
	member->ack = ack;
	member->progress_us = now_us;
	if (was_last)
		base_update(channel, now_us);
}

/* The packet's, and those of PUSHes that the kernel has kept. */
static void acks_take(struct channel *channel, const struct packet *packet, uint64_t now_us)
{
	ack_take(channel, packet->worker, packet->edge, now_us);
	for (uint32_t rank = 0; channel->config.fast != NULL && rank < channel->config.worker_count;
	     rank++)
		ack_take(channel, rank, fast_ack(channel, rank), now_us);
}

static void ask_answer(struct channel *channel, const struct packet *packet)
{
	const struct segment *segment = plan_find(channel, packet->frame);
	struct reply reply = {.kind = REPLY_PLAN, .rank = packet->worker};

	if (segment == NULL) {
		count_drop(channel, WIRE_DROP_FRAME);
		return;
	}
	reply.number = (uint32_t)(segment - channel->segments);
	reply_put(channel, &reply);
}

void channel_receive(struct channel *channel, const struct packet *packet, uint64_t now_us)
{
	struct channel_stats *stats = &channel->stats;

	channel->now_us = now_us;
	stats->received++;
	stats->received_bytes += WIRE_HEADER_BYTES + packet->body_bytes;
	if (!knows(channel, packet))
		return;
	acks_take(channel, packet, now_us);
	switch (packet->kind) {
	case WIRE_PUSH:
		slot_push(channel, packet, now_us);
		break;
	case WIRE_ANNOUNCE:
		plan_announce(channel, packet, now_us);
		break;
	case WIRE_NACK:
		slot_nack(channel, packet);
		break;
	case WIRE_ASK:
		ask_answer(channel, packet);
		break;
	case WIRE_ACK:
		if (packet->mask & WIRE_ACK_ANSWER)
			reply_put(channel, &(struct reply){.kind = REPLY_CREDIT,
			                                   .rank = packet->worker,
			                                   .number = packet->frame});
		break;
	default:
		count_drop(channel, WIRE_DROP_KIND);
	}
	fast_publish(channel);
}

/* ---- sending ---- */

/* Section 10.6. May a frame or a plan go to this worker once more now? */
static bool answer_allowed(struct channel *channel, uint32_t rank)
{
	struct member *member = &channel->members[rank];
	bool stuck = member->round_left == 0 && member->ack == member->round_ack;

	if (member->round_us == 0 || channel->now_us - member->round_us >= member->round_length) {
		member->round_length =
			stuck && member->round_us != 0 ? 2 * member->round_length : ROUND_US_MIN;
		if (member->round_length > ROUND_US_MAX)
			member->round_length = ROUND_US_MAX;
		member->round_us = channel->now_us;
		member->round_ack = member->ack;
		member->round_left = channel->config.window;
		fast_answers(channel, rank, channel->config.window);
	}
	if (member->round_left == 0)
		return false;
	member->round_left--;
	return true;
}

void reply_put(struct channel *channel, const struct reply *reply)
{
	bool again = reply->kind == REPLY_RESULT || reply->kind == REPLY_PLAN;

	if (again && !answer_allowed(channel, reply->rank)) {
		count_drop(channel, WIRE_DROP_FULL);
		return;
	}
	if (channel->replies_tail - channel->replies_head == REPLIES_MAX) {
		count_drop(channel, WIRE_DROP_FULL);
		return;
	}
	channel->replies[channel->replies_tail++ % REPLIES_MAX] = *reply;
}

static void head_begin(struct channel *channel, struct packet_out *out, enum wire_kind kind,
                       uint16_t dest, uint32_t frame)
{
	struct packet_head head = {
		.kind = (uint8_t)kind,
		.channel = channel->config.id,
		.worker = dest,
		.token = channel->config.group_token,
		.frame = frame,
		.edge = channel->base,
		.window = (uint16_t)channel->config.window,
		.sequence = fast_sequence(channel, false),
		.planned = channel->planned,
	};

	out->dest = dest;
	packet_begin(out, &head);
}

static void build_plan(struct channel *channel, const struct segment *segment, uint16_t dest,
                       struct packet_out *out)
{
	head_begin(channel, out, WIRE_PLAN, dest, segment->first);
	plan_build(channel, segment, out);
}

/* False when what was asked for is over and done with. */
static bool build_reply(struct channel *channel, const struct reply *reply, struct packet_out *out)
{
	const struct segment *segment;

	switch (reply->kind) {
	case REPLY_PLAN:
		segment = &channel->segments[reply->number];
		if (segment->state != SEGMENT_PLANNED)
			return false;
		build_plan(channel, segment, reply->rank, out);
		channel->stats.plan_resends++;
		return true;
	case REPLY_RESULT:
		if (!slot_done(channel, reply->number))
			return false;
		head_begin(channel, out, WIRE_RESULT, reply->rank, reply->number);
		slot_build(channel, reply->number, out);
		channel->stats.result_resends++;
		return true;
	case REPLY_WANT:
		head_begin(channel, out, WIRE_WANT, reply->rank, reply->number);
		packet_put_words(out, reply->words, reply->word_count);
		channel->stats.wants++;
		return true;
	case REPLY_CREDIT:
		head_begin(channel, out, WIRE_CREDIT, reply->rank, reply->number);
		return true;
	}
	return false;
}

/* New credit goes alone only when nothing else has carried it (section 8.4). */
static bool credit_due(const struct channel *channel)
{
	uint32_t news = channel->base + channel->config.window - channel->advertised;

	return news >= channel->config.window / 4 ||
	       (news > 0 && channel->base == channel->planned);
}

static bool pull_one(struct channel *channel, struct packet_out *out)
{
	if (channel->plans_sent != channel->order_tail) {
		uint32_t place = channel->plans_sent++ & (channel->segment_count - 1);

		build_plan(channel, &channel->segments[channel->order[place]], WIRE_EVERYONE, out);
		return true;
	}
	while (channel->replies_head != channel->replies_tail)
		if (build_reply(channel, &channel->replies[channel->replies_head++ % REPLIES_MAX],
		                out))
			return true;
	while (channel->results_head != channel->results_tail) {
		uint32_t frame =
			channel->results[channel->results_head++ & (channel->config.window - 1)];

		if (!slot_done(channel, frame))
			continue;
		slot_sent(channel, frame, fast_sequence(channel, true));
		head_begin(channel, out, WIRE_RESULT, WIRE_EVERYONE, frame);
		slot_build(channel, frame, out);
		return true;
	}
	fast_advertised(channel);
	if (credit_due(channel)) {
		head_begin(channel, out, WIRE_CREDIT, WIRE_EVERYONE, 0);
		return true;
	}
	return false;
}

bool channel_pull(struct channel *channel, uint64_t now_us, struct packet_out *out)
{
	(void)now_us;
	if (!pull_one(channel, out))
		return false;
	if (out->dest == WIRE_EVERYONE)
		channel->advertised = channel->base + channel->config.window;
	channel->stats.sent++;
	channel->stats.sent_bytes += out->bytes;
	return true;
}

/* ---- looking; channel_watch.c sees who waits for whom ---- */

uint32_t channel_payload(const struct channel *channel)
{
	return channel->config.payload;
}

const struct channel_stats *channel_stats(struct channel *channel)
{
	channel->with_fast = channel->stats;
	fast_stats(channel, &channel->with_fast);
	return &channel->with_fast;
}

void channel_address(struct channel *channel, uint32_t rank, uint32_t ip, uint16_t port)
{
	if (channel->config.fast == NULL)
		return;
	__atomic_store_n(&channel->config.fast->address[rank], ip, __ATOMIC_RELAXED);
	__atomic_store_n(&channel->config.fast->port[rank], port, __ATOMIC_RELAXED);
}

bool channel_is_fast(const struct channel *channel)
{
	return channel->config.fast != NULL;
}
