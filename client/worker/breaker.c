// SPDX-License-Identifier: BSD-3-Clause
/* breaker.c - see breaker.h */

#include "client/worker/breaker.h"

static void way_begin(struct breaker_way *way, uint64_t packets, uint64_t lost, uint64_t now_us)
{
	*way = (struct breaker_way){.packets = packets, .lost = lost, .began_us = now_us};
}

/* CONGESTION.md 7: "when in ten consecutive ones more than a fifth was lost (RFC 8085, 3.1.10)" */
static bool way_look(struct breaker_way *way, uint64_t packets, uint64_t lost, uint64_t now_us)
{
	uint64_t here = packets - way->packets, lost_here = lost - way->lost;

	if (now_us - way->began_us < (way->bad + 1) * (uint64_t)BREAKER_INTERVAL_US ||
	    here < BREAKER_PACKETS_MIN)
		return false;
	if (lost_here * BREAKER_SHARE <= here) {
		way_begin(way, packets, lost, now_us);
		return false;
	}
	way->packets = packets;
	way->lost = lost;
	way->bad_packets += here;
	way->bad_lost += lost_here;
	return ++way->bad >= BREAKER_INTERVALS;
}

bool breaker_look(struct breaker *breaker, const struct control_seen *seen, uint64_t now_us,
                  struct breaker_verdict *out)
{
	uint64_t in = seen->in + seen->in_lost; /* `in` does not count lost datagrams. */
	bool out_ends, in_ends;
	const struct breaker_way *way;

	if (!breaker->begun) {
		breaker->begun = true;
		way_begin(&breaker->out, seen->pushes, seen->out_lost, now_us);
		way_begin(&breaker->in, in, seen->in_lost, now_us);
		return false;
	}
	out_ends = way_look(&breaker->out, seen->pushes, seen->out_lost, now_us);
	in_ends = way_look(&breaker->in, in, seen->in_lost, now_us);
	way = out_ends ? &breaker->out : &breaker->in;
	*out = (struct breaker_verdict){.in = !out_ends,
	                                .packets = way->bad_packets,
	                                .lost = way->bad_lost,
	                                .for_us = now_us - way->began_us};
	return out_ends || in_ends;
}
