/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * upward.h - a site's links to its parent, one for each of its workers, as a machine without I/O
 *
 * Each is a worker's link (client/worker/link.h), and joins in the worker's name. jobs.c begins and
 * ends them by struct jobs_ports, and hears what the parent says to a worker; one that ends the job
 * ends its links. Who provides the connections gives what comes by them to upward_link(), and then
 * turns the link: see struct upward_ports. One thread; nothing blocks.
 */
#ifndef AGGREGATOR_SITE_UPWARD_H
#define AGGREGATOR_SITE_UPWARD_H

#include "aggregator/jobs/jobs.h"
#include "aggregator/site/relay.h"

struct upwards; /* all links of a site */
struct upward;  /* one */

struct upwards_config {
	const char *parent;   /* its address, for people */
	const char *site;     /* the name of this site */
	uint64_t via;         /* stands for this site, whatever its name */
	uint32_t payload_max; /* bytes of a datagram to the parent */
	uint32_t rcvbuf; /* bytes of a data thread's receive buffer, as the kernel counts them */
	bool keyed;
};

/* `carrier` is the link's connection, by the name that begin() has given it. */
struct upward_ports {
	void *context;
	uint64_t (*now_us)(void *context);
	/* upwards_turn() is due then, or sooner. */
	void (*wake)(void *context, uint64_t due_us);

	/* A link begins, and connects later. Returns 0, or what up_join() may return. */
	int (*begin)(void *context, struct upward *up, void **carrier);
	/* Connects, perhaps again: upward_connected() or upward_unreachable() follows. */
	void (*connect)(void *carrier);
	void (*line)(void *carrier, const char *line);
	/* The link has ended: neither it nor the carrier is used any more. */
	void (*end)(void *carrier);

	/* Sends a KNOCK for this place in WELCOME's list of channels. */
	void (*knock)(void *context, uint32_t channel, const struct packet_out *packet);
	/* Gives a channel its relay, whose owner is the data plane from now on. */
	void (*relay)(void *context, uint16_t id, struct relay *relay);
	void (*look)(void *context, uint16_t id, struct relay_view *sum); /* relay_look() */
};

/* upwards_open - keeps the strings of config. Returns 0 or -ENOMEM. */
int upwards_open(const struct upwards_config *config, const struct upward_ports *ports,
                 struct upwards **out);
void upwards_cut(struct upwards *all);   /* ends all links */
void upwards_close(struct upwards *all); /* after upwards_cut(), and after jobs_close() */
bool upwards_none(const struct upwards *all);

/* upwards_serve - sets what is for a site in `ports`; upwards_told - to whom its links tell. */
void upwards_serve(struct upwards *all, struct jobs_ports *ports);
void upwards_told(struct upwards *all, struct jobs *jobs);

void upwards_turn(struct upwards *all);

/* A datagram of the parent that answers a KNOCK. */
void upwards_answer(struct upwards *all, const uint8_t *data, uint32_t bytes);

/* For calls that concern the link alone: link_line(), link_secured(), link_plain() and the like. */
struct link *upward_link(const struct upward *up);

/* Each of these turns the link, and may end it. */
void upward_turn(struct upward *up);
void upward_connected(struct upward *up, bool carries); /* lines, or only once it is secured */
void upward_carries(struct upward *up);
void upward_unreachable(struct upward *up, const char *reason); /* It could not be connected. */
void upward_lost(struct upward *up, const char *reason);        /* Its connection has ended. */

#endif /* AGGREGATOR_SITE_UPWARD_H */
