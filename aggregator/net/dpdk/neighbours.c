// SPDX-License-Identifier: BSD-3-Clause
/* neighbours.c - see neighbours.h; a hash table whose readers look twice, at words that are atomic */

#include "aggregator/net/dpdk/neighbours.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define ENTRIES 8192 /* a power of two, at least twice the workers of a large job */
#define REACH 8      /* places that an address may be in */

struct entry {
	_Atomic uint32_t turn;    /* odd while it is given to another address or station */
	_Atomic uint32_t ip;      /* 0: empty */
	_Atomic uint64_t station; /* port, then the six bytes of the MAC address */
	_Atomic uint64_t heard_us;
};

struct neighbours {
	pthread_mutex_t lock; /* of writing */
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

/* Neighbouring addresses go to places far apart. */
static uint32_t place(uint32_t ip, uint32_t step)
{
	return ((ip * 2654435769u >> 16) + step) % ENTRIES;
}

bool neighbours_find(const struct neighbours *neighbours, uint32_t ip, struct neighbour *out)
{
	for (uint32_t step = 0; step < REACH; step++) {
		const struct entry *entry = &neighbours->entries[place(ip, step)];
		uint32_t turn = atomic_load_explicit(&entry->turn, memory_order_acquire);
		uint64_t station;

		if (atomic_load_explicit(&entry->ip, memory_order_acquire) != ip || ip == 0)
			continue;
		station = atomic_load_explicit(&entry->station, memory_order_acquire);
		out->heard_us = atomic_load_explicit(&entry->heard_us, memory_order_acquire);
		/*
		 * Given away meanwhile? The address alone does not tell: it may have left, and come
		 * back. What was read before is not older than the turn that is read now.
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

/* Its own place; or an empty one; or that of the entry not heard of for longest. */
static struct entry *entry_for(struct neighbours *neighbours, uint32_t ip)
{
	struct entry *best = NULL;

	for (uint32_t step = 0; step < REACH; step++) {
		struct entry *entry = &neighbours->entries[place(ip, step)];
		uint32_t there = atomic_load_explicit(&entry->ip, memory_order_relaxed);

		if (there == ip)
			return entry;
		if (best == NULL || (there == 0 && best->ip != 0) ||
		    (best->ip != 0 && entry->heard_us < best->heard_us))
			best = entry;
	}
	return best;
}

void neighbours_learn(struct neighbours *neighbours, uint32_t ip, const uint8_t mac[6],
                      uint8_t port, uint64_t now_us)
{
	uint64_t station = port;
	struct entry *entry;
	uint32_t turn;

	if (ip == 0)
		return;
	for (uint32_t i = 0; i < 6; i++)
		station = station << 8 | mac[i];
	pthread_mutex_lock(&neighbours->lock);
	entry = entry_for(neighbours, ip);
	if (entry->ip == ip && entry->station == station) {
		atomic_store_explicit(&entry->heard_us, now_us, memory_order_relaxed);
	} else {
		turn = atomic_load_explicit(&entry->turn, memory_order_relaxed);
		atomic_store_explicit(&entry->turn, turn + 1, memory_order_relaxed);
		/* A reader that sees one of these also sees the odd turn. */
		atomic_store_explicit(&entry->station, station, memory_order_release);
		atomic_store_explicit(&entry->heard_us, now_us, memory_order_release);
		atomic_store_explicit(&entry->ip, ip, memory_order_release);
		atomic_store_explicit(&entry->turn, turn + 2, memory_order_release);
	}
	pthread_mutex_unlock(&neighbours->lock);
}
