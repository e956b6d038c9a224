// SPDX-License-Identifier: BSD-3-Clause
/* gather.c - see gather.h */

#include "client/worker/gather.h"

#define ENOUGH 64       /* datagrams */
#define SLEEP_US_MIN 50 /* A shorter sleep costs more than it saves. */
#define SLEEP_US_MAX 2000

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint32_t gather_us(struct gather *gather, uint32_t most, uint64_t now_us)
{
	uint64_t took_us = now_us - gather->since_us, us = 0;

	if (most > 0 && gather->datagrams == 0)
		return 0;
	if (most > 0)
		us = least(took_us * least(most, ENOUGH) / gather->datagrams,
		           least(2 * gather->last_us + SLEEP_US_MIN, SLEEP_US_MAX));
	us = us >= SLEEP_US_MIN ? us : 0;
	*gather = (struct gather){.since_us = now_us, .last_us = (uint32_t)us};
	return (uint32_t)us;
}
