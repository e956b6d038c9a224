// SPDX-License-Identifier: BSD-3-Clause
/* crowd.c - see crowd.h */

#include "aggregator/jobs/crowd.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int crowd_open(struct crowd *crowd, uint32_t room)
{
	uint32_t size = 4;

	while (size < 2 * room)
		size *= 2;
	*crowd = (struct crowd){.room = room, .table_size = size};
	crowd->members = calloc(room, sizeof(*crowd->members));
	crowd->table = calloc(size, sizeof(*crowd->table));
	if (crowd->members != NULL && crowd->table != NULL)
		return 0;
	crowd_close(crowd);
	return -ENOMEM;
}

void crowd_close(struct crowd *crowd)
{
	free(crowd->members);
	free(crowd->table);
	*crowd = (struct crowd){0};
}

void crowd_add(struct crowd *crowd, uint64_t owner, void *who)
{
	assert(crowd->count < crowd->room);
	crowd->members[crowd->count++] = (struct crowd_member){.owner = owner, .who = who};
}

bool crowd_remove(struct crowd *crowd, const void *who)
{
	uint32_t at = 0;

	while (at < crowd->count && crowd->members[at].who != who)
		at++;
	if (at == crowd->count)
		return false;
	crowd->count--;
	memmove(&crowd->members[at], &crowd->members[at + 1],
	        (crowd->count - at) * sizeof(crowd->members[0]));
	return true;
}

uint32_t crowd_count(const struct crowd *crowd, uint64_t owner)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < crowd->count; i++)
		count += crowd->members[i].owner == owner;
	return count;
}

/* Finds the owner's place in the table, which is at least half empty. */
static struct crowd_heap *heap_of(const struct crowd *crowd, uint64_t owner)
{
	uint32_t mask = crowd->table_size - 1;
	uint32_t at = (uint32_t)(owner * 0x9e3779b97f4a7c15 >> 32) & mask;

	while (crowd->table[at].first != 0 &&
	       crowd->members[crowd->table[at].first - 1].owner != owner)
		at = (at + 1) & mask;
	return &crowd->table[at];
}

struct crowd_heaviest crowd_heaviest(const struct crowd *crowd)
{
	struct crowd_heaviest heaviest = {0};
	const struct crowd_heap *most = NULL;

	memset(crowd->table, 0, crowd->table_size * sizeof(crowd->table[0]));
	for (uint32_t i = 0; i < crowd->count; i++) {
		struct crowd_heap *heap = heap_of(crowd, crowd->members[i].owner);

		if (heap->first == 0) {
			heap->first = i + 1;
			heaviest.owners++;
		}
		heap->count++;
		if (most == NULL || heap->count > most->count ||
		    (heap->count == most->count && heap->first < most->first))
			most = heap;
	}
	if (most == NULL)
		return heaviest;
	heaviest.oldest = crowd->members[most->first - 1].who;
	heaviest.count = most->count;
	return heaviest;
}
