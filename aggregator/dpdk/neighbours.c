// SPDX-License-Identifier: BSD-3-Clause
/* neighbours.c - see neighbours.h; a hash table with atomic words, which readers read twice */

#include "aggregator/dpdk/neighbours.h"

#include <endian.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define ENTRIES 8192 /* at least twice the workers of a large job */
#define PLACE_BITS 13
#define REACH 8 /* places that an address may be in */

struct entry {
	_Atomic uint32_t turn;    /* odd while the entry changes its address or station */
	_Atomic uint64_t ip[2];   /* both 0 if empty */
	_Atomic uint64_t station; /* the port, then the six bytes of the MAC address */
	_Atomic uint64_t heard_us;
};

struct neighbours {
	pthread_mutex_t lock; /* for writers */
	struct entry entries[ENTRIES];
};

struct neighbours *neighbours_new(void)
{
	struct neighbours *neighbours = calloc(1, sizeof(*neighbours));

	if (neighbours != NULL)
		pthread_mutex_init(&neighbours->lock, NULL);
	return neighbours;
}

void neighbours_free(struct neighbours *neighbours)
{
	if (neighbours != NULL)
		pthread_mutex_destroy(&neighbours->lock);
	free(neighbours);
}

/* An address as two numbers. */
struct key {
	uint64_t high, low;
};

_Static_assert(ENTRIES == 1 << PLACE_BITS, "places are numbers of so many bits");

static struct key key_of(const struct net_ip *ip)
{
	struct key key;

	memcpy(&key.high, ip->bytes, sizeof(key.high));
	memcpy(&key.low, ip->bytes + sizeof(key.high), sizeof(key.low));
	return (struct key){be64toh(key.high), be64toh(key.low)};
}

/* Spreads neighbouring addresses far apart. */
static uint32_t key_place(struct key key, uint32_t step)
{
	uint64_t mixed = (key.high * 0xc2b2ae3d27d4eb4f + key.low) * 0x9e3779b97f4a7c15;

	return ((uint32_t)(mixed >> (64 - PLACE_BITS)) + step) % ENTRIES;
}

static bool entry_holds(const struct entry *entry, struct key key, memory_order order)
{
	return atomic_load_explicit(&entry->ip[1], order) == key.low &&
	       atomic_load_explicit(&entry->ip[0], order) == key.high;
}

static bool entry_empty(const struct entry *entry)
{
	return entry_holds(entry, (struct key){0, 0}, memory_order_relaxed);
}

bool neighbours_find(const struct neighbours *neighbours, const struct net_ip *ip,
                     struct neighbour *out)
{
	struct key key = key_of(ip);

	for (uint32_t step = 0; step < REACH; step++) {
		const struct entry *entry = &neighbours->entries[key_place(key, step)];
		uint32_t turn = atomic_load_explicit(&entry->turn, memory_order_acquire);
		uint64_t station;

		if (!entry_holds(entry, key, memory_order_acquire) || net_ip_none(ip))
			continue;
		station = atomic_load_explicit(&entry->station, memory_order_acquire);
		out->heard_us = atomic_load_explicit(&entry->heard_us, memory_order_acquire);
		/*
		 * Was the entry given away meanwhile? The address alone does not tell: it may have
		 * left and come back. What was read before is not older than this turn.
		 */
		if (turn % 2 != 0 ||
		    atomic_load_explicit(&entry->turn, memory_order_relaxed) != turn)
			return false;
		out->port = (uint8_t)(station >> 48);
		for (uint32_t i = 0; i < 6; i++)
			out->mac[i] = (uint8_t)(station >> (40 - 8 * i));
		return true;
	}
	return false;
}

/* Finds the key's entry, or an empty one, or the one that has been silent for longest. */
static struct entry *entry_for(struct neighbours *neighbours, struct key key)
{
	struct entry *best = NULL;

	for (uint32_t step = 0; step < REACH; step++) {
		struct entry *entry = &neighbours->entries[key_place(key, step)];

		if (entry_holds(entry, key, memory_order_relaxed))
			return entry;
		if (best == NULL || (entry_empty(entry) && !entry_empty(best)) ||
		    (!entry_empty(best) && entry->heard_us < best->heard_us))
			best = entry;
	}
	return best;
}

void neighbours_learn(struct neighbours *neighbours, const struct net_ip *ip, const uint8_t mac[6],
                      uint8_t port, uint64_t now_us)
{
	struct key key = key_of(ip);
	uint64_t station = port;
	struct entry *entry;
	uint32_t turn;

	if (net_ip_none(ip))
		return;
	for (uint32_t i = 0; i < 6; i++)
		station = station << 8 | mac[i];
	pthread_mutex_lock(&neighbours->lock);
	entry = entry_for(neighbours, key);
	if (entry_holds(entry, key, memory_order_relaxed) && entry->station == station) {
		atomic_store_explicit(&entry->heard_us, now_us, memory_order_relaxed);
	} else {
		turn = atomic_load_explicit(&entry->turn, memory_order_relaxed);
		atomic_store_explicit(&entry->turn, turn + 1, memory_order_relaxed);
		/* A reader that sees one of these also sees the odd turn. */
		atomic_store_explicit(&entry->station, station, memory_order_release);
		atomic_store_explicit(&entry->heard_us, now_us, memory_order_release);
		atomic_store_explicit(&entry->ip[0], key.high, memory_order_release);
		atomic_store_explicit(&entry->ip[1], key.low, memory_order_release);
		atomic_store_explicit(&entry->turn, turn + 2, memory_order_release);
	}
	pthread_mutex_unlock(&neighbours->lock);
}
