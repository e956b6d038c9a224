// SPDX-License-Identifier: BSD-3-Clause
/* channel_receive.c - memory, acknowledgements, and the dispatch of packets */

#include "aggregator/channel/channel.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "aggregator/channel/channel_state.h"

/*
 * ---- memory: one block, laid out by the same walk that measures it ----
 *
 * It comes from the system as zeros, page by page as pages are touched. To touch a gigabyte here
 * would stop the control loop for most of a second.
 */

#define ALIGNMENT 64

/* With AddressSanitizer there are gaps between the pieces, so that it notices an overrun. */
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

static void *arena_take(struct arena *arena, size_t count, size_t bytes)
{
	uint8_t *piece = arena->start != NULL ? arena->start + arena->used : NULL;
	size_t room = (count * bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + GAP_BYTES;

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

static void lay_out_tables(struct channel *ch, struct arena *arena, const struct channel_config *c)
{
	size_t workers = c->worker_count;

	ch->rank_words = (c->worker_count + 63u) / 64;
	ch->segment_words = geometry_segment_max(c->payload) / 64;
	ch->segment_count = 1;
	while (ch->segment_count < c->op_slots * c->segments_ahead)
		ch->segment_count *= 2;
	ch->members = arena_take(arena, workers, sizeof(*ch->members));
	ch->binds = arena_take(arena, workers * c->op_slots, sizeof(*ch->binds));
	ch->ops = arena_take(arena, c->op_slots, sizeof(*ch->ops));
	ch->segments = arena_take(arena, c->op_slots * c->segments_ahead, sizeof(*ch->segments));
	ch->slots = arena_take(arena, c->window, sizeof(*ch->slots));
	ch->order.places = arena_take(arena, ch->segment_count, sizeof(*ch->order.places));
	ch->results.frames = arena_take(arena, c->window, sizeof(*ch->results.frames));
	ch->replies.list = arena_take(arena, REPLIES_MAX, sizeof(*ch->replies.list));
}

/*
 * While measuring, one entry of each table stands for all. Bitmaps of ranks lie side by side,
 * because between the buffers each would take a page of its own.
 */
static void lay_out_entries(struct channel *ch, struct arena *arena, const struct channel_config *c)
{
	const uint32_t step = arena->start != NULL, segments = c->op_slots * c->segments_ahead;

	for (uint32_t i = 0; i < c->op_slots; i++)
		ch->ops[i * step].bound = arena_take(arena, ch->rank_words, 8);
	for (uint32_t i = 0; i < segments; i++)
		ch->segments[i * step].joined = arena_take(arena, ch->rank_words, 8);
	for (uint32_t i = 0; i < c->window; i++)
		ch->slots[i * step].came = arena_take(arena, ch->rank_words, 8);

	for (uint32_t i = 0; i < c->op_slots; i++)
		ch->ops[i * step].eager =
			arena_take(arena, WIRE_EAGER_SEGMENTS, eager_bytes(c->payload));
	for (uint32_t i = 0; i < segments; i++) {
		struct segment *segment = &ch->segments[i * step];

		segment->united = arena_take(arena, ch->segment_words, 8);
		segment->set = arena_take(arena, ch->segment_words, 8);
		segment->bits = arena_take(arena, c->worker_count, ch->segment_words * 8);
	}
	for (uint32_t i = 0; i < c->window; i++)
		ch->slots[i * step].data = arena_take(arena, 2, c->payload);
}

size_t channel_memory(const struct channel_config *config)
{
	struct channel measure = {0};
	struct arena arena = {0};
	struct operation op;
	struct segment segment;
	struct slot slot;

	if (!config_valid(config))
		return 0;
	arena_take(&arena, 1, sizeof(struct channel));
	lay_out_tables(&measure, &arena, config);
	measure.ops = &op;
	measure.segments = &segment;
	measure.slots = &slot;
	lay_out_entries(&measure, &arena, config);
	return arena.used;
}

int channel_open(const struct channel_config *config, struct channel **out)
{
	size_t bytes = channel_memory(config);
	struct arena arena = {0};
	struct channel *ch;
	uint8_t *memory;

	if (bytes == 0)
		return -EINVAL;
	memory = calloc(1, bytes + ALIGNMENT);
	if (memory == NULL)
		return -ENOMEM;
	arena.start = memory + ALIGNMENT - (uintptr_t)memory % ALIGNMENT;
	ch = arena_take(&arena, 1, sizeof(*ch));
	ch->memory = memory;
	lay_out_tables(ch, &arena, config);
	lay_out_entries(ch, &arena, config);

	ch->config = *config;
	ch->config.tokens = NULL;
	for (uint32_t rank = 0; rank < config->worker_count; rank++)
		ch->speaker_count += !is_mute(ch, rank);
	ch->base = ch->opened = ch->planned = config->first_frame;
	ch->told.base = ch->above = ch->base;
	ch->credit = ch->told.credit = ch->base + 1;
	for (uint32_t i = 0; i < config->worker_count; i++) {
		ch->members[i].token = config->tokens[i];
		ch->members[i].ack = ch->base;
		ch->members[i].room = ch->base;
		ch->members[i].earned = config->window * config->payload;
	}
	ch->at_base = ch->speaker_count;
	for (uint32_t i = 0; i < config->op_slots; i++)
		plan_reset(ch, &ch->ops[i]);
	fast_start(ch);
	*out = ch;
	return 0;
}

void channel_close(struct channel *channel)
{
	if (channel != NULL)
		free(channel->memory);
}

/* ---- receiving ---- */

/* Tells whether the packet carries the token of the worker that it names. */
static bool token_right(struct channel *channel, const struct packet *packet)
{
	if (packet->worker >= channel->config.worker_count || is_mute(channel, packet->worker)) {
		count_drop(channel, WIRE_DROP_WORKER);
		return false;
	}
	if (packet->token != channel->members[packet->worker].token) {
		count_drop(channel, WIRE_DROP_SEAL);
		return false;
	}
	return true;
}

/* 8.4: "grants frames before the least of these, but at least one frame" */
static void credit_update(struct channel *channel)
{
	uint32_t room = channel->config.window;

	for (uint32_t i = 0; i < channel->config.worker_count; i++)
		if (!is_mute(channel, i) && channel->members[i].room - channel->base < room)
			room = channel->members[i].room - channel->base;
	if (room == 0)
		room = 1;
	if (frame_before(channel->credit, channel->base + room))
		channel->credit = channel->base + room;
}

/* 8.3: "base is the smallest ack of all workers, also of those that have left (11.4)" */
static void base_update(struct channel *channel, uint64_t now_us)
{
	uint32_t least = UINT32_MAX;

	for (uint32_t i = 0; i < channel->config.worker_count; i++) {
		uint32_t ahead = channel->members[i].ack - channel->base;

		if (is_mute(channel, i))
			continue;
		channel->at_base = ahead < least ? 0 : channel->at_base;
		least = ahead < least ? ahead : least;
		channel->at_base += ahead == least;
	}
	assert(least > 0);
	channel->turns += channel->base + least < channel->base;
	channel->base += least;
	channel->progress_us = now_us;
	channel->alone_us = now_us;
	plan_release(channel, now_us);
	slot_open_more(channel);
	credit_update(channel);
}

/* 8.3: "An ack or pushed after planned is ignored". So is an ack of a frame that was never open. */
static void ack_take(struct channel *channel, uint32_t rank, uint32_t ack, uint64_t now_us)
{
	struct member *member = &channel->members[rank];
	bool was_last = member->ack == channel->base;

	if (!frame_before(member->ack, ack) || frame_before(channel->opened, ack))
		return;
	repeats_earn(channel, rank,
	             (uint64_t)EARNED_BY_ACK * channel->config.payload * (ack - member->ack));
	member->ack = ack;
	if (frame_before(member->room, ack))
		member->room = ack;
	member->progress_us = now_us;
	if (was_last)
		watch_acked(channel, rank, now_us);
	if (channel->at_base == 0)
		base_update(channel, now_us);
}

/* 8.4: "It takes each worker's furthest ack + window". What is granted stays granted. */
static void room_take(struct channel *channel, uint32_t rank, uint32_t room)
{
	struct member *member = &channel->members[rank];
	bool was_least = !frame_before(channel->credit, member->room);

	if (!frame_before(member->room, room) ||
	    frame_before(channel->opened + channel->config.window, room))
		return;
	member->room = room;
	if (was_least)
		credit_update(channel);
}

/* Takes the packet's ack, and the acks of PUSHes that the kernel did not pass up. */
static void acks_take(struct channel *channel, const struct packet *packet, uint64_t now_us)
{
	uint32_t most = channel->config.window;
	/* 8.4: "a window of 0, or above START's, stands for START's" */
	uint32_t window = packet->window - 1u < most ? packet->window : most;

	ack_take(channel, packet->worker, packet->edge, now_us);
	room_take(channel, packet->worker, packet->edge + window);
	for (uint32_t rank = 0; channel->config.fast != NULL && rank < channel->config.worker_count;
	     rank++) {
		ack_take(channel, rank, fast_ack(channel, rank), now_us);
		room_take(channel, rank, fast_room(channel, rank));
	}
}

void channel_receive(struct channel *channel, const struct packet *packet, uint64_t now_us)
{
	struct channel_stats *stats = &channel->stats;

	channel->now_us = now_us;
	stats->received++;
	stats->received_bytes += WIRE_HEADER_BYTES + packet->body_bytes;
	if (!token_right(channel, packet))
		return;
	channel->members[packet->worker].marked += packet->marked;
	repeats_earn(channel, packet->worker,
	             EARNED_BY_BYTE * (uint64_t)(WIRE_HEADER_BYTES + packet->body_bytes));
	acks_take(channel, packet, now_us);
	switch (packet->kind) {
	case WIRE_PUSH:
		slot_push(channel, packet, now_us);
		break;
	case WIRE_ANNOUNCE:
		plan_announce(channel, packet, now_us);
		break;
	case WIRE_STATUS:
		slot_status(channel, packet);
		break;
	default:
		count_drop(channel, WIRE_DROP_KIND);
	}
	fast_publish(channel);
	channel_check_edges(channel);
}

/* ---- queries ---- */

uint32_t channel_payload(const struct channel *channel)
{
	return channel->config.payload;
}

const struct channel_config *channel_config(const struct channel *channel)
{
	return &channel->config;
}

bool channel_is_mute(const struct channel *channel, uint32_t rank)
{
	return is_mute(channel, rank);
}

uint64_t channel_edge(const struct channel *channel)
{
	return base_edge(channel);
}

const struct channel_stats *channel_stats(struct channel *channel)
{
	channel->with_fast = channel->stats;
	fast_stats(channel, &channel->with_fast);
	return &channel->with_fast;
}

void channel_address(struct channel *channel, uint32_t rank, const struct fast_home *home)
{
	struct fast_home *to;

	if (channel->config.fast == NULL)
		return;
	to = &channel->config.fast->home[rank];
	__atomic_store_n(&to->six[0], home->six[0], __ATOMIC_RELAXED);
	__atomic_store_n(&to->six[1], home->six[1], __ATOMIC_RELAXED);
	__atomic_store_n(&to->four, home->four, __ATOMIC_RELAXED);
	__atomic_store_n(&to->port, home->port, __ATOMIC_RELAXED);
}

bool channel_is_fast(const struct channel *channel)
{
	return channel->config.fast != NULL;
}
