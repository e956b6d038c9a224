/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * crowd.h - members that take up room without having proved their purpose, and which of them makes
 * room
 *
 * Each belongs to an owner: the address that it came from, or a key. When there is no room for one
 * more, the oldest member of the owner with the most members must go. So a stranger who opens
 * thousands of connections only pushes out his own, and a newcomer has time to show its purpose.
 */
#ifndef AGGREGATOR_CROWD_H
#define AGGREGATOR_CROWD_H

#include <stdbool.h>
#include <stdint.h>

struct crowd_member {
	uint64_t owner;
	void *who;
};

struct crowd {
	uint32_t count, room;
	struct crowd_member *members; /* [room], the oldest first. */
	uint32_t table_size;
	struct crowd_heap {
		uint32_t first; /* The place of the owner's oldest member, plus 1; 0: free. */
		uint32_t count;
	} * table; /* [table_size], by owner; only crowd_heaviest() uses it. */
};

/* The owner with the most members. Of several, it is the one with the oldest member. */
struct crowd_heaviest {
	void *oldest; /* NULL if the crowd is empty. */
	uint32_t count;
	uint32_t owners; /* The number of owners in the crowd. */
};

int crowd_open(struct crowd *crowd, uint32_t room); /* 0 or -ENOMEM */
void crowd_close(struct crowd *crowd);

void crowd_add(struct crowd *crowd, uint64_t owner, void *who); /* there is room */
bool crowd_remove(struct crowd *crowd, const void *who);        /* false: it was not in the crowd */
uint32_t crowd_count(const struct crowd *crowd, uint64_t owner);
struct crowd_heaviest crowd_heaviest(const struct crowd *crowd);

#endif /* AGGREGATOR_CROWD_H */
