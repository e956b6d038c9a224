/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gather.h - how long a worker's thread may sleep while datagrams gather in its sockets
 *
 * On a thin link datagrams come one by one, and each would wake the thread. Network cards have the
 * same problem with interrupts, and wait for so many packets or so long: Mogul and Ramakrishnan,
 * "Eliminating Receive Livelock in an Interrupt-Driven Kernel" (ACM TOCS, 1997); rx-frames and
 * rx-usecs of Linux's ethtool. Here the thread does so only in the midst of a large operation,
 * whose end then comes no later, and only where nobody else uses the network: queues grow by what
 * it sends at once afterwards.
 */
#ifndef CLIENT_GATHER_H
#define CLIENT_GATHER_H

#include <stdint.h>

struct gather {
	uint64_t since_us;  /* When the last sleep began. */
	uint32_t last_us;   /* How long the last sleep was; 0: there was none. */
	uint32_t datagrams; /* How many have come since then. The caller counts them. */
};

/*
 * gather_us - to be called when nothing is left to do. Returns how long to sleep so that about 64
 * datagrams come, or `most` if that is less, at the rate of those since the last sleep: at most 2
 * ms, and about twice as long as the last time. 0: not at all.
 */
uint32_t gather_us(struct gather *gather, uint32_t most, uint64_t now_us);

#endif /* CLIENT_GATHER_H */
