/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * queue.h - a thread's part of the device: a queue of each port, and the nets that it serves
 *
 * The aggregator has one net a queue. A worker has one queue for all its nets (its own address, and
 * multicast groups). Frames are handed out in the order of their arrival, whichever net they are
 * for.
 */
#ifndef AGGREGATOR_DPDK_QUEUE_H
#define AGGREGATOR_DPDK_QUEUE_H

#include "bitmap/net/clock.h"
#include "aggregator/dpdk/device.h"
#include "bitmap/net/trouble.h"

#define QUEUE_ASKED_MAX 16

struct net {
	struct queue *queue;
	struct net_facts facts;
	struct net_ip group; /* none for our own address */
	uint16_t port;       /* of datagrams to this net */
	uint32_t dscp;       /* of datagrams that it sends */
	int group_fd;        /* the kernel's membership if it has the address; else -1 */
	struct net *next;    /* in the queue's list */
	struct net_stats stats;
	struct net_troubles troubles;
};

struct queue_item {
	struct net *owner;
	struct net_in in;
};

struct queue_asked {
	struct net_ip ip;
	uint64_t since_us, when_us; /* of the first and the last question */
};

struct queue {
	uint32_t index;
	struct net *nets;
	bool entered; /* its thread is registered with DPDK */

	/* Receiving: the last burst, of which the items before `at` are handed out. */
	uint32_t mbuf_count, count, at;
	struct rte_mbuf *mbufs[NET_BURST_MAX];
	struct queue_item items[NET_BURST_MAX];
	uint64_t idle_since_us; /* 0 while not idle */

	/* Sending. */
	struct rte_mempool *headers;
	struct rte_mbuf *payloads[NET_BURST_MAX];
	uint64_t sums[NET_BURST_MAX];
	struct rte_mbuf *frames[NET_BURST_MAX];
	uint32_t kept_count[DEVICE_PORTS_MAX]; /* frames that a port had no room for */
	struct rte_mbuf *kept[DEVICE_PORTS_MAX][NET_BURST_MAX];
	struct queue_asked asked[QUEUE_ASKED_MAX];
	uint64_t tx_errors; /* frames that found no room */
	uint64_t rx_errors, rx_others;
};

/* The group that switches must know of: its own, or the group of questions for our address. */
static inline struct net_ip net_listens(const struct net *net)
{
	return net_ip_none(&net->group) ? frame_asked_group(&device.ip) : net->group;
}

/* receive.c */
uint32_t queue_receive(struct net *net, struct net_in in[], uint32_t max);

/* queue_forget - drops frames for this net that were not handed out; others wait behind them. */
void queue_forget(const struct net *net);

/* transmit.c. A port has one address, from which everything is sent. */
uint32_t queue_send(struct net *net, const struct net_path to[], uint32_t to_count,
                    const struct net_out out[], uint32_t count);
bool queue_ready(struct net *net); /* sends the kept frames; false: some are left */

/* queue_small - sends a frame of at most FRAME_SMALL_BYTES_MAX by one port, if there is room. */
void queue_small(struct queue *queue, uint32_t port, const uint8_t *frame, uint32_t bytes);

#endif /* AGGREGATOR_DPDK_QUEUE_H */
