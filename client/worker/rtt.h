/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rtt.h - round trips: how long they take, how long to wait for one, and what of them is the hosts'
 *
 * The estimates and timers of PROTOCOL.md 10.1 are RFC 6298's. A round trip has two parts: the way through the network,
 * between the kernels' stamps, and what datagrams have waited in sockets and threads of both hosts, most of it for a
 * CPU. Only the way tells of queues. Pure.
 */
#ifndef CLIENT_RTT_H
#define CLIENT_RTT_H

#include <stdint.h>

#define RTT_PROBE_START_US 20000
#define RTT_PROBE_MAX_US 400000
#define RTT_LATE_US_MIN 300
#define RTT_LATE_US_MAX 5000

struct rtt {
	uint64_t srtt_us; /* It is 0 before the first sample. */
	uint64_t rttvar_us;
	uint64_t best_us; /* The shortest way in this span of time, and in the one before. */
	uint64_t span_best_us,
		span_until_us; /* The shortest way in this span alone, and its end. */
	uint64_t wait_us;      /* What hosts let datagrams wait: near the longest of late. */
};

void rtt_init(struct rtt *rtt);

/* A round trip was measured, of which `way_us` were spent in the network. */
void rtt_take(struct rtt *rtt, uint64_t rtt_us, uint64_t way_us, uint64_t now_us);

/* 10.1: "The probe time is RFC 6298's srtt + 4*rttvar, and late, at most 400 ms; 20 ms before the first measurement" */
uint64_t rtt_probe_us(const struct rtt *rtt);

/* 10.1: "when a datagram that another one has overtaken is taken for lost: an eighth of srtt, 300 us to 5 ms" */
uint64_t rtt_late_us(const struct rtt *rtt);

/* How long to wait before asking again in a silence that has lasted so long. */
uint64_t rtt_silence_us(const struct rtt *rtt, uint64_t silent_us);

#endif /* CLIENT_RTT_H */
