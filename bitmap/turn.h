/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * turn.h - how soon a thread gets a CPU
 *
 * A thread that answers others runs for some microseconds at a time. Beside threads that always
 * have something to do, the kernel lets it wait for their slices of some milliseconds, unless its
 * own slice is shorter or its priority is higher. A shorter slice gives it no more of a CPU, only
 * sooner.
 */
#ifndef BITMAP_TURN_H
#define BITMAP_TURN_H

#include <stdint.h>

struct turn {
	/* The kernel's own where it refuses ours; 0 before Linux 6.12, and for other policies. */
	uint32_t slice_us;
	int32_t nice; /* -20 to 19; lower goes first. */
};

/*
 * turn_ask - asks, for the calling thread, for slices of 100 us, the shortest that there are, and
 * for a priority ten steps higher than it had, which needs CAP_SYS_NICE or RLIMIT_NICE. Threads and
 * processes that it starts later have the kernel's own slice, and no priority above the usual one.
 * Sets *out to what the thread has now. A thread whose policy is real-time or SCHED_IDLE keeps what
 * it has.
 */
void turn_ask(struct turn *out);

#endif /* BITMAP_TURN_H */
