/* SPDX-License-Identifier: BSD-3-Clause */
/* clock.h - the time by CLOCK_MONOTONIC, for all files that are not pure. Any thread. */
#ifndef BITMAP_NET_CLOCK_H
#define BITMAP_NET_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline uint64_t clock_us(void)
{
	return clock_ns() / 1000;
}

/* Returns the difference from clock_us() to the time since 1970 on this host's clock. */
static inline uint64_t clock_epoch_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000 - clock_us();
}

static inline struct timespec clock_timespec(uint64_t us)
{
	return (struct timespec){.tv_sec = (time_t)(us / 1000000),
	                         .tv_nsec = (long)(us % 1000000 * 1000)};
}

#endif /* BITMAP_NET_CLOCK_H */
