/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * simnet.h - a network and a clock that exist only in memory
 *
 * Events in order of virtual time: datagrams, which may be lost, doubled, delayed and
 * overtaken, and which queue at the receiver's port when that has a rate; lines of control
 * connections, which are reliable and ordered; timers. Everything random comes from one
 * seed. Nodes are numbers, the meaning of bytes is their business.
 */
#ifndef TESTS_SIM_SIMNET_H
#define TESTS_SIM_SIMNET_H

#include <stdbool.h>
#include <stdint.h>

struct simnet;

struct simnet_config {
	uint64_t seed;
	uint32_t loss_ppm, duplicate_ppm, reorder_ppm; /* of datagrams, in millionths */
	uint64_t delay_us_min, delay_us_max;
	uint64_t reorder_us;   /* extra delay of a datagram that is overtaken */
	uint32_t mtu;          /* larger datagrams vanish; 0: none is too large */
	uint64_t rate_bytes_s; /* of every node's port, inbound; 0: no limit */
	uint64_t queue_bytes;  /* in front of that port; more is lost */
	uint32_t nodes;
};

enum sim_event_kind { SIM_DATAGRAM, SIM_LINE, SIM_GONE, SIM_TIMER };

struct sim_event {
	uint64_t at_us;
	uint64_t order; /* of equal times: first come, first served */
	enum sim_event_kind kind;
	uint32_t from, to;
	uint32_t channel; /* LINE, GONE: which connection; TIMER: the setter's */
	uint32_t bytes;
	uint8_t *data; /* malloc'ed; simnet_free() */
};

struct simnet_stats {
	uint64_t datagrams, lost, doubled, overflowed;
};

struct simnet *simnet_open(const struct simnet_config *config);
void simnet_close(struct simnet *net);

uint64_t simnet_now(const struct simnet *net);

/* Numbers from the simulation's own stream. */
uint64_t simnet_random(struct simnet *net);
uint64_t simnet_between(struct simnet *net, uint64_t low, uint64_t high); /* inclusive */
bool simnet_chance(struct simnet *net, uint32_t ppm);

/* A datagram; `data` is copied. */
void simnet_send(struct simnet *net, uint32_t from, uint32_t to, const void *data, uint32_t bytes);

/* A line or the end of connection `channel`, behind all earlier ones of the same (from, to). */
void simnet_line(struct simnet *net, uint32_t from, uint32_t to, uint32_t channel,
                 const char *line);
void simnet_gone(struct simnet *net, uint32_t from, uint32_t to, uint32_t channel);

void simnet_timer(struct simnet *net, uint32_t node, uint32_t channel, uint64_t at_us);

/* Take the next event and move the clock there; false when there is none. */
bool simnet_next(struct simnet *net, struct sim_event *out);
/* Put an event back, to happen later. */
void simnet_postpone(struct simnet *net, const struct sim_event *event, uint64_t at_us);
void simnet_free(struct sim_event *event);

const struct simnet_stats *simnet_stats(const struct simnet *net);

#endif /* TESTS_SIM_SIMNET_H */
