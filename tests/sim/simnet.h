/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * simnet.h - a network and a clock that exist only in memory
 *
 * Events in order of virtual time: datagrams, lines of control connections, which are reliable and
 * ordered, and timers. Every node has a way out and a way in, and a datagram takes the sender's and
 * then the receiver's. Each may lose, double, delay, reorder, be too narrow for large datagrams, have
 * a rate with a queue in front of it, or be cut; all of that may change while the clock runs. Ways of
 * several nodes may lead through one queue of a switch, which drops, marks, and counts by node.
 * Everything random comes from one seed. Nodes are numbers, the meaning of bytes is their business.
 */
#ifndef TESTS_SIM_SIMNET_H
#define TESTS_SIM_SIMNET_H

#include <stdbool.h>
#include <stdint.h>

#define SIMNET_BURST_US 250
#define SIMNET_HEADER_BYTES 42 /* Ethernet, IPv4, UDP: a datagram takes as much more of a link */

struct simnet;

/* A link of a switch, and what waits for it. What does not fit is lost. */
struct simnet_queue {
	uint64_t rate_bits_s;
	uint64_t buffer_bytes;
	uint64_t mark_bytes; /* who finds more waiting is marked; 0: nobody is */
};

/* One direction of a node's link. All zero: nothing is lost, and it takes no time. */
struct simnet_path {
	uint32_t loss_ppm, duplicate_ppm, reorder_ppm; /* of datagrams, in millionths */
	uint32_t flip_ppm; /* in: they arrive with a bit that is another, and count as lost */
	uint64_t delay_us_min, delay_us_max;
	uint64_t reorder_us;   /* extra delay, at most, of a datagram that is overtaken */
	uint64_t line_us;      /* extra delay of lines of control connections */
	uint32_t mtu;          /* larger datagrams vanish; 0: none is too large */
	uint64_t rate_bytes_s; /* 0: no limit */
	uint64_t
		queue_bytes; /* in front of the rate; in: more is lost; out: see simnet_ready_us() */
	uint32_t queue;      /* in place of the rate: a switch's, see simnet_queue_add(); 0: none */
	bool cut;            /* all datagrams vanish; lines pass */
};

/* AT_PORT stays within simnet.c. */
enum sim_event_kind { SIM_DATAGRAM, SIM_AT_PORT, SIM_LINE, SIM_GONE, SIM_TIMER };

struct sim_event {
	uint64_t at_us;
	uint64_t came_us; /* DATAGRAM: when it came, before it was put back; 0: now */
	uint64_t order;   /* of equal times: first come, first served */
	enum sim_event_kind kind;
	uint32_t from, to;
	uint32_t address;    /* DATAGRAM: the sender's, as it was then */
	uint32_t connection; /* LINE, GONE */
	uint32_t channel;    /* TIMER: the setter's */
	uint32_t bytes;
	bool again;   /* has been put back by simnet_postpone() */
	bool changed; /* a bit is not as it was sent */
	bool marked;  /* DATAGRAM: congestion experienced */
	const uint8_t *data;
};

struct simnet_stats {
	uint64_t datagrams, lost, doubled, overflowed;
};

/* What has passed, or not, from or to one node. */
struct simnet_meter {
	uint64_t datagrams, bytes; /* that found room */
	uint64_t marked, dropped;
	uint64_t
		burst_max; /* bytes that the node has put into it within SIMNET_BURST_US, at most */
};

struct simnet_queue_stats {
	uint64_t bytes_max;
	double bytes_mean; /* over time, from the first datagram to the last */
	double bytes_us;   /* the same, not divided by that time */
};

struct simnet *simnet_open(uint64_t seed, uint32_t nodes);
void simnet_close(struct simnet *net);

uint64_t simnet_now(const struct simnet *net);

/* A node's ways, to be changed at will; and its address, which travels with what it sends (first: 1). */
struct simnet_path *simnet_out(struct simnet *net, uint32_t node);
struct simnet_path *simnet_in(struct simnet *net, uint32_t node);
void simnet_move(struct simnet *net, uint32_t node);
uint32_t simnet_address(const struct simnet *net, uint32_t node);

/* simnet_queue_add - its number: 1 and up. Ways out begin with it, ways in end with it. */
uint32_t simnet_queue_add(struct simnet *net, const struct simnet_queue *queue);
const struct simnet_meter *simnet_meter(const struct simnet *net, uint32_t queue, uint32_t node);
void simnet_queue_stats(const struct simnet *net, uint32_t queue, struct simnet_queue_stats *out);

/* Numbers from the simulation's own stream. */
uint64_t simnet_random(struct simnet *net);
uint64_t simnet_between(struct simnet *net, uint64_t low, uint64_t high); /* inclusive */
bool simnet_chance(struct simnet *net, uint32_t ppm);

/* When the way out of `node` has room for a datagram: now, or after what queues there. */
uint64_t simnet_ready_us(const struct simnet *net, uint32_t node);

/*
 * A datagram to each of to[0 .. count): by multicast, so it leaves once. It reaches a node only at the
 * address given, if that is not 0. Never refused: who cares about simnet_ready_us() asks before.
 */
void simnet_send(struct simnet *net, uint32_t from, const uint32_t to[], uint32_t count,
                 const void *data, uint32_t bytes);
void simnet_send_to(struct simnet *net, uint32_t from, uint32_t to, uint32_t address,
                    const void *data, uint32_t bytes);

/* A connection: 1 and up. A line, or its end, comes behind all earlier ones of that direction. */
uint32_t simnet_connect(struct simnet *net);
void simnet_line(struct simnet *net, uint32_t connection, uint32_t from, uint32_t to,
                 const char *line);
void simnet_gone(struct simnet *net, uint32_t connection, uint32_t from, uint32_t to);

void simnet_timer(struct simnet *net, uint32_t node, uint32_t channel, uint64_t at_us);

/* Take the next event and move the clock there; false when there is none. */
bool simnet_next(struct simnet *net, struct sim_event *out);
/* Put an event back, to happen later, behind others that are put back before it; its data goes along. */
void simnet_postpone(struct simnet *net, struct sim_event *event, uint64_t at_us);
void simnet_free(struct sim_event *event);

const struct simnet_stats *simnet_stats(const struct simnet *net);

#endif /* TESTS_SIM_SIMNET_H */
