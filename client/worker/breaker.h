/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * breaker.h - a circuit breaker: notices loss that slowing down has not ended (RFC 8085, 3.1.10; CONGESTION.md 7)
 *
 * Where a fifth of all datagrams is lost, a TCP flow would have fewer than three under way, and our
 * smallest window is two: there is no slower way to go on. Pure: what was seen and the time come in.
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
#define BREAKER_SHARE 5 /* one in so many */

/* One direction: as last looked at, and since loss has been heavy. */
struct breaker_way {
	uint64_t packets, lost;
	uint64_t began_us;
	uint32_t bad; /* intervals */
	uint64_t bad_packets, bad_lost;
};

struct breaker {
	bool begun;
	struct breaker_way out, in; /* to the aggregator, and from it */
};

/* How much was lost, and for how long. */
struct breaker_verdict {
	bool in;
	uint64_t packets, lost, for_us;
};

/* breaker_look - what a link has seen by now; true, and *out: it must end. */
bool breaker_look(struct breaker *breaker, const struct control_seen *seen, uint64_t now_us,
                  struct breaker_verdict *out);

#endif /* CLIENT_BREAKER_H */
