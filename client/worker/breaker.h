/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * breaker.h - a circuit breaker: detects loss that slowing down has not ended (RFC 8085, 3.1.10; CONGESTION.md 7)
 *
 * At a loss of one fifth a TCP flow would have fewer than three datagrams under way. Our smallest window is two, so a
 * worker cannot slow down further. Pure: the caller passes counts and the time.
 */
#ifndef CLIENT_BREAKER_H
#define CLIENT_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/control/message.h"

#define BREAKER_INTERVAL_US 1000000
#define BREAKER_INTERVALS 10
/* CONGESTION.md 7: "in intervals of at least a second and 64 datagrams" */
#define BREAKER_PACKETS_MIN 64
#define BREAKER_SHARE 5 /* More than one datagram in this many lost is heavy loss. */

/* One direction. `packets` and `lost` are the counts of the last look; the rest describes a time of heavy loss. */
struct breaker_way {
	uint64_t packets, lost;
	uint64_t began_us;
	uint32_t bad; /* Consecutive intervals of heavy loss. */
	uint64_t bad_packets, bad_lost;
};

struct breaker {
	bool begun;
	struct breaker_way out, in; /* To the aggregator, and from it. */
};

/* The loss that opened the breaker, and for how long it lasted. */
struct breaker_verdict {
	bool in;
	uint64_t packets, lost, for_us;
};

/* Looks at a link's counts. Returns true and fills *out if the link must end. */
bool breaker_look(struct breaker *breaker, const struct control_seen *seen, uint64_t now_us,
                  struct breaker_verdict *out);

#endif /* CLIENT_BREAKER_H */
