// SPDX-License-Identifier: BSD-3-Clause
/*
 * channel_fast.c - slots that the kernel also adds to
 *
 * ebpf/fastpath.h has the rules. A slot whose `fast` is set keeps its contributors and sums in
 * shared memory; fast_look() copies what may have changed there.
 */

#include <assert.h>

#include "aggregator/channel/channel_state.h"

#define LOAD(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)
#define STORE(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELEASE)

/* The kernel holds the lock for one addition at most, so this spins. */
static void shared_lock(struct fast_slot *shared)
{
	while (__atomic_exchange_n(&shared->lock, 1, __ATOMIC_ACQUIRE) != 0)
		;
}

static void shared_unlock(struct fast_slot *shared)
{
	STORE(shared->lock, 0);
}

static struct fast_slot *shared_slot(const struct channel *channel, uint32_t frame)
{
	return &channel->config.fast_slots[frame & (channel->config.window - 1)];
}

static uint64_t all_workers(const struct channel *channel)
{
	return UINT64_MAX >> (FAST_WORKERS_MAX - channel->config.worker_count);
}

void fast_start(struct channel *channel)
{
	struct fast_channel *fast = channel->config.fast;

	if (fast == NULL)
		return;
	assert(channel->config.payload <= FAST_PAYLOAD_MAX);
	fast->window_mask = channel->config.window - 1;
	/* The program sends only through its own device, so every worker must be on that side. */
	fast->multicast = channel->config.to_group && LOAD(fast->knocked) == all_workers(channel);
	for (uint32_t i = 0; i < channel->config.worker_count; i++) {
		fast->ack[i] = fast->room[i] = channel->base;
	}
	for (uint32_t i = 0; i < channel->config.window; i++)
		STORE(channel->config.fast_slots[i].state, FAST_CLOSED);
	fast->sequence = channel->sequence;
	fast->told_base = channel->base;
	fast->told_credit = channel->credit;
	fast_publish(channel);
	STORE(fast->active, 1);
}

/* ---- slots ---- */

/* Closes the slot of an earlier frame there, because the kernel has no part in this frame. */
void fast_close(struct channel *channel, struct slot *slot)
{
	struct fast_slot *shared;

	slot->fast = NULL;
	if (channel->config.fast == NULL)
		return;
	shared = shared_slot(channel, slot->frame);
	if (LOAD(shared->state) == FAST_CLOSED)
		return;
	shared_lock(shared);
	STORE(shared->state, FAST_CLOSED);
	shared_unlock(shared);
}

void fast_open(struct channel *channel, struct slot *slot)
{
	struct fast_slot *shared = shared_slot(channel, slot->frame);
	uint64_t lanes[SEGMENT_WORDS];

	shared_lock(shared);
	STORE(shared->state, FAST_CLOSED); /* for readers without the lock */
	shared->frame = slot->frame;
	shared->expected = slot->expected;
	shared->arrived = 0;
	shared->unit_bytes = slot->unit_bytes;
	shared->block_count = (uint16_t)slot->block_count;
	shared->private = slot->receiver != WIRE_EVERYONE;
	shared->sent = 0;
	shared->came = 0;
	shared->touched = 0;
	for (uint32_t rank = 0; rank < channel->config.worker_count; rank++) {
		(void)slot_lanes(channel, slot, rank, lanes);
		shared->owned[rank] = lanes[0];
	}
	STORE(shared->state, FAST_OPEN);
	shared_unlock(shared);
	slot->fast = shared;
}

void fast_look(struct slot *slot)
{
	const struct fast_slot *shared = slot->fast;

	if (shared == NULL)
		return;
	if (LOAD(shared->state) == FAST_DONE)
		slot->state = SLOT_DONE;
	if (LOAD(shared->sent)) {
		slot->sent = true;
		slot->sequence = (uint16_t)shared->sequence;
	}
	slot->came[0] = LOAD(shared->came);
}

void fast_sent(struct slot *slot)
{
	if (slot->fast == NULL)
		return;
	slot->fast->sequence = slot->sequence;
	STORE(slot->fast->sent, 1);
}

/* Adds a worker's blocks, and clears untouched ones before, because the kernel does not. */
static void shared_add(struct fast_slot *shared, const struct sum *sum, const struct packet *packet)
{
	const uint64_t owned = shared->owned[packet->worker];

	for (uint64_t fresh = owned & ~shared->touched; fresh != 0; fresh &= fresh - 1)
		memset(shared->data + (size_t)__builtin_ctzll(fresh) * shared->unit_bytes, 0,
		       shared->unit_bytes);
	sum_add(sum, &owned, (uint32_t)__builtin_popcountll(owned), packet->body, false);
	shared->touched |= owned;
}

enum fast_push fast_push(struct channel *channel, struct slot *slot, const struct sum *sum,
                         const struct packet *packet)
{
	uint64_t bit = UINT64_C(1) << packet->worker;
	struct fast_slot *shared = slot->fast;
	enum fast_push push = FAST_PUSH_AGAIN;

	shared_lock(shared);
	if (!(shared->came & bit)) {
		shared->came |= bit;
		shared_add(shared, sum, packet);
		push = FAST_PUSH_ADDED;
		channel->stats.fast_missed++;
		if (++shared->arrived == shared->expected) {
			STORE(shared->state, FAST_DONE);
			push = FAST_PUSH_COMPLETED;
		}
	}
	shared_unlock(shared);
	if (!fast_unsent(slot))
		return push;
	return push == FAST_PUSH_COMPLETED ? push : FAST_PUSH_UNSENT;
}

/*
 * fast_unsent - tells whether the frame is complete, ours to send, and not queued yet. The kernel
 * holds the lock from completing a frame until it has sent the RESULT.
 */
bool fast_unsent(struct slot *slot)
{
	struct fast_slot *shared = slot->fast;
	bool unsent;

	if (shared == NULL)
		return slot->state == SLOT_DONE && !slot->sent && !slot->queued;
	shared_lock(shared);
	unsent = shared->state == FAST_DONE && !shared->sent && !slot->queued;
	shared_unlock(shared);
	fast_look(slot);
	return unsent;
}

uint8_t *fast_data(const struct slot *slot)
{
	return slot->fast != NULL ? slot->fast->data : slot->data;
}

/* ---- the channel ---- */

/* How many frames apart the kernel wakes us: at most a quarter of the credit. */
static uint32_t call_mask(const struct channel *channel)
{
	uint32_t quarter = (channel->credit - channel->base) / 4, mask = 0;

	while (2 * mask + 2 <= quarter)
		mask = 2 * mask + 1;
	return mask;
}

void fast_publish(struct channel *channel)
{
	struct fast_channel *fast = channel->config.fast;

	if (fast == NULL)
		return;
	STORE(fast->planned, channel->planned);
	STORE(fast->call_mask, call_mask(channel));
	STORE(fast->credit, channel->credit); /* before base: see answer.bpf.h */
	STORE(fast->base, base_edge(channel));
}

uint32_t fast_ack(const struct channel *channel, uint32_t rank)
{
	return LOAD(channel->config.fast->ack[rank]);
}

uint32_t fast_room(const struct channel *channel, uint32_t rank)
{
	return LOAD(channel->config.fast->room[rank]);
}

uint32_t fast_marked(const struct channel *channel, uint32_t rank)
{
	return channel->config.fast != NULL ? LOAD(channel->config.fast->marked[rank]) : 0;
}

uint16_t fast_sequence(struct channel *channel, bool next)
{
	struct fast_channel *fast = channel->config.fast;

	if (fast == NULL)
		return next ? ++channel->sequence : channel->sequence;
	if (next)
		return (uint16_t)(__atomic_add_fetch(&fast->sequence, 1, __ATOMIC_ACQ_REL));
	return (uint16_t)LOAD(fast->sequence);
}

/*
 * The kernel's RESULTs also carry credit. It may not have sent any for 2^31 frames, whose numbers
 * then look like future ones. So the numbers that are least far behind were told last.
 */
void fast_advertised(struct channel *channel)
{
	uint32_t told;

	if (channel->config.fast == NULL)
		return;
	told = LOAD(channel->config.fast->told_base);
	if (channel->base - told < channel->base - channel->told.base)
		channel->told.base = told;
	told = LOAD(channel->config.fast->told_credit);
	if (channel->credit - told < channel->credit - channel->told.credit)
		channel->told.credit = told;
}

void fast_stats(const struct channel *channel, struct channel_stats *stats)
{
	uint64_t counts[FAST_STAT_COUNT];

	if (channel->config.fast == NULL)
		return;
	for (uint32_t i = 0; i < FAST_STAT_COUNT; i++)
		counts[i] = __atomic_load_n(&channel->config.fast->stats[i], __ATOMIC_RELAXED);
	stats->received += counts[FAST_STAT_RECEIVED];
	stats->received_bytes += counts[FAST_STAT_RECEIVED_BYTES];
	stats->pushes += counts[FAST_STAT_PUSHES];
	stats->fast_added += counts[FAST_STAT_PUSHES];
	stats->results += counts[FAST_STAT_RESULTS];
	stats->sent += counts[FAST_STAT_SENT];
	stats->sent_bytes += counts[FAST_STAT_SENT_BYTES];
	stats->passed_through += counts[FAST_STAT_SINGLE];
	stats->drops[WIRE_DROP_DUPLICATE] += counts[FAST_STAT_DUPLICATES];
}
