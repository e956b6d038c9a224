/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * turn.h - how soon a thread gets a CPU
 *
 * A thread that answers others runs for some microseconds at a time. Beside threads that always have something to do, the
 * kernel lets it wait for their slices, of some milliseconds, unless its own slice is shorter than theirs, or its
 * priority higher. A shorter slice gives it no more of a CPU, only sooner.
 */
#ifndef BITMAP_TURN_H
#define BITMAP_TURN_H

#include <stdint.h>

struct turn {
	uint32_t
		slice_us; /* 0: the kernel's own, because it is older than Linux 6.12, or does not let us. */
	int32_t nice; /* -20 to 19; lower goes first. */
};

/*
 * turn_ask - asks for slices of 100 us, the shortest that there are, and for a priority ten steps higher than it had,
 * which needs CAP_SYS_NICE or RLIMIT_NICE, for the calling thread. *out: what it has now. Threads of a real-time policy
 * keep that.
 */
void turn_ask(struct turn *out);

#endif /* BITMAP_TURN_H */
