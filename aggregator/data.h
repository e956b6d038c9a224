/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * data.h - the data threads: packets from nets to channels and back
 *
 * Each thread owns one net and the channels attached to it. Its only system calls are the net's and
 * one wait, and its only lock is for handing a datagram to another thread (data_packets.c). The
 * control thread gives orders through a mailbox and waits until they are carried out, so a channel
 * is never used after data_detach(). Orders begin and end jobs; a site also asks about the way to its
 * parent, at each heartbeat and a few times a second.
 */
#ifndef AGGREGATOR_DATA_H
#define AGGREGATOR_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/jobs/jobs.h"
#include "bitmap/net/net.h"
#include "bitmap/turn.h"

struct data;
struct relay; /* this one and the next: aggregator/site/relay.h */
struct relay_view;

enum report_kind {
	REPORT_STALL,   /* an operation has waited too long */
	REPORT_TROUBLE, /* a worker cannot be reached; repeated about once a second */
	REPORT_LOST,    /* the net is dead; repeated */
	REPORT_ABOVE,   /* an answer of the parent to a KNOCK; the receiver frees it */
	REPORT_REFUSED, /* the parent refuses an operation; once */
};

struct report {
	enum report_kind kind;
	uint16_t id; /* the channel's */
	union {
		struct channel_stall stall;
		struct jobs_trouble trouble;
		struct why lost;
		struct {
			uint8_t *data;
			uint32_t bytes;
		} above;
		struct wire_mismatch refused;
	};
};

struct data_config {
	const struct net_backend *backend;
	struct net_config net; /* for each thread; queue_count is the number of threads */
	bool (*report)(void *context, const struct report *report); /* called by a data thread */
	void *context;
	const struct net_addr *parent; /* NULL if this is no site */
};

/* Totals of all threads. */
struct data_stats {
	struct net_stats net;
	uint64_t drops[WIRE_DROP_COUNT]; /* packets for no channel, and drops of ended jobs */
	uint64_t unsent;                 /* datagrams given up because the network stayed full */
	struct turn turn;                /* a thread's; last, because it is no sum */
};

/* data_open - opens the nets and starts the threads. Returns 0, or -errno with one line in `why`. */
int data_open(const struct data_config *config, struct data **out, struct why *why);
void data_close(struct data *data);

const char *data_backend(const struct data *data); /* its name */

const struct net_facts *data_facts(const struct data *data); /* of a thread's net */

/* For struct jobs_ports; their context is the struct data. */
int data_attach(void *data, const struct jobs_channel *channel);
void data_start(void *data, uint16_t id, struct channel *channel, const bool multicast[]);
void data_heard(void *data, uint16_t id, uint32_t rank, struct jobs_heard *out);
void data_detach(void *data, uint16_t id);

/*
 * For a site. data_relay() gives a channel its relay, which data_detach() closes; data_relay_look() is
 * relay_look(). data_send() sends one datagram to the parent from the socket of a thread.
 */
void data_relay(struct data *data, uint16_t id, struct relay *relay);
void data_relay_look(struct data *data, uint16_t id, struct relay_view *sum);
void data_send(struct data *data, uint32_t thread, const struct packet_out *packet);

/* Adds up structs that only hold uint64_t. */
static inline void counters_add(void *sum, const void *one, size_t bytes)
{
	const uint64_t *from = one;
	uint64_t *to = sum;

	for (size_t i = 0; i < bytes / sizeof(*to); i++)
		to[i] += from[i];
}

/* data_await - waits until each data thread has turned once. For the control thread. */
void data_await(struct data *data);

/* A question about a channel, and its answer. */
struct data_look {
	uint16_t id;
	uint64_t group_token;
	uint32_t worker_count;
	struct channel_stats stats;
	struct channel_view view;
	/* [worker_count]; each is raised to this channel's if that is larger. */
	struct channel_waits *waits;
	bool found; /* false if there is no such channel; the three above are then empty */
};

/*
 * data_look - copies the data threads' numbers, for one other thread. No data thread waits: each
 * makes its copies between packets, one channel a turn. Orders do not wait for them, either.
 */
void data_look(struct data *data, struct data_look looks[], uint32_t count, struct data_stats *out);

#endif /* AGGREGATOR_DATA_H */
