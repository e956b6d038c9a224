// SPDX-License-Identifier: BSD-3-Clause
/*
 * net_dpdk.c - the back end "dpdk": polls ports that DPDK drives; an object of its own
 *
 *   environment.c  DPDK's start and its log
 *   device.c       ports, addresses
 *   links.c        ports while they run
 *   kernel.c       what the kernel knows of an interface that a port shares with it
 *   receive.c      frames to nets
 *   transmit.c     datagrams to frames
 */

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/dpdk/kernel.h"
#include "aggregator/dpdk/queue.h"

#define HEADERS 4095
#define HEADER_ROOM 128
#define SPIN_US 20 /* a shorter idle time does not count */
#define LONG_IDLE_US 100000
#define LONG_IDLE_FACTOR 20
#define FULL_REST_US 20

static struct queue *queues[DPDK_QUEUES_MAX];

/* ---- opening and closing ---- */

static void queue_free(struct queue *queue)
{
	for (uint32_t i = 0; i < device.port_count; i++)
		rte_pktmbuf_free_bulk(queue->kept[i], queue->kept_count[i]);
	rte_pktmbuf_free_bulk(queue->mbufs, queue->mbuf_count);
	rte_mempool_free(queue->headers);
	queues[queue->index] = NULL;
	free(queue);
}

static struct queue *queue_new(uint32_t index, struct why *why)
{
	struct queue *queue = calloc(1, sizeof(*queue));
	char name[RTE_MEMPOOL_NAMESIZE];

	snprintf(name, sizeof(name), "winnow-heads-%u", index);
	if (queue != NULL)
		queue->headers = rte_pktmbuf_pool_create(
			name, HEADERS, 128, 0, HEADER_ROOM + RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
	if (queue == NULL || queue->headers == NULL) {
		free(queue);
		why_set(why, -ENOMEM, "no memory for %d headers: give EAL more (-m)", HEADERS);
		return NULL;
	}
	queue->index = index;
	queues[index] = queue;
	return queue;
}

static void dpdk_close(struct net *net)
{
	struct queue *queue;
	struct net **place;

	if (net == NULL)
		return;
	queue = net->queue;
	for (place = &queue->nets; *place != net; place = &(*place)->next)
		;
	*place = net->next;
	queue_forget(net);
	if (net->group_fd >= 0)
		close(net->group_fd);
	free(net);
	if (queue->nets == NULL)
		queue_free(queue);
	device_put();
}

/* Tells switches that we listen, or has the kernel tell them. */
static int group_join(struct net *net, struct why *why)
{
	const struct net_ip group = net_listens(net);
	uint8_t report[FRAME_SMALL_BYTES_MAX];

	for (uint32_t i = 0; i < device.port_count && !net_ip_none(&group); i++) {
		const struct frame_station us = device_station(i);

		if (!device.kernels) {
			queue_small(net->queue, i, report, frame_report(report, &us, &group));
			continue;
		}
		if (net_ip_none(&net->group)) /* the kernel takes care of that */
			continue;
		net->group_fd = kernel_join(device.ports[i].if_index, &group);
		if (net->group_fd < 0)
			return why_set(why, net->group_fd, "cannot join the multicast group: %s",
			               strerror(-net->group_fd));
	}
	return 0;
}

static bool already_open(const struct queue *queue, const struct net_ip *group)
{
	for (const struct net *net = queue != NULL ? queue->nets : NULL; net != NULL;
	     net = net->next)
		if (net_ip_same(&net->group, group))
			return true;
	return false;
}

static int dpdk_open(const struct net_config *config, struct net **out, struct why *why)
{
	bool grouped = !net_ip_none(&config->group);
	struct net *net;
	int err = device_get(config, why);

	if (err != 0)
		return err;
	if (grouped && net_ip_is_v4(&config->group) != net_ip_is_v4(&device.ip)) {
		device_put();
		return why_set(why, -EAFNOSUPPORT,
		               "the multicast group and the address for datagrams are of different "
		               "families");
	}
	if (already_open(queues[config->queue], &config->group)) {
		device_put();
		return why_set(
			why, -EBUSY,
			"the dpdk datapath serves only one communicator of a process at a time");
	}
	net = calloc(1, sizeof(*net));
	if (net == NULL)
		why_set(why, -ENOMEM, "out of memory for a queue");
	else
		net->queue = queues[config->queue] != NULL ? queues[config->queue]
		                                           : queue_new(config->queue, why);
	if (net == NULL || net->queue == NULL) {
		free(net);
		device_put();
		return -ENOMEM;
	}
	net->group = config->group;
	net->dscp = config->dscp;
	net->port = grouped ? config->local.port : device.udp_port;
	net->facts = (struct net_facts){
		.fd = -1,
		/* Counted like a socket's: the frames that may wait in a queue of each port. */
		.buffer_bytes = device.payload_max * 1024,
		.payload_max = device.payload_max,
		.address = {.ip = grouped ? config->group : device.ip, .port = net->port},
	};
	net->group_fd = -1;
	net->next = net->queue->nets;
	net->queue->nets = net;
	err = group_join(net, why);
	if (err != 0) {
		dpdk_close(net);
		return err;
	}
	*out = net;
	return 0;
}

/* ---- packets ---- */

/* Registers the thread that uses the queue, once, because memory pools keep a cache for it. */
static void queue_enter(struct queue *queue)
{
	const rte_cpuset_t *cpus = environment_cpus(queue->index);

	queue->entered = true;
	if (cpus != NULL)
		pthread_setaffinity_np(pthread_self(), sizeof(*cpus), cpus);
	if (rte_lcore_id() == LCORE_ID_ANY)
		(void)rte_thread_register();
}

static uint32_t dpdk_recv(struct net *net, struct net_in in[], uint32_t max)
{
	if (!net->queue->entered)
		queue_enter(net->queue);
	return queue_receive(net, in, max);
}

static uint32_t dpdk_rest(struct net *net)
{
	struct queue *queue = net->queue;
	uint32_t most_us = device.idle_us;
	uint64_t now_us = clock_us(), idle_us;

	if (queue->idle_since_us == 0)
		queue->idle_since_us = now_us;
	idle_us = now_us - queue->idle_since_us;
	if (most_us == 0 || idle_us < SPIN_US || queue->at < queue->count)
		return 0;
	if (!queue_ready(net))
		return RTE_MIN(most_us, (uint32_t)FULL_REST_US);
	if (idle_us > LONG_IDLE_US)
		most_us *= LONG_IDLE_FACTOR;
	return (uint32_t)RTE_MIN((uint64_t)most_us, idle_us / 4);
}

/* ---- health and numbers ---- */

static uint32_t dpdk_troubles(struct net *net, struct net_trouble out[NET_TROUBLES_MAX])
{
	return trouble_take(&net->troubles, out);
}

static int dpdk_health(struct net *net, struct why *why)
{
	/* One thread looks after the ports. */
	return net->queue->index == 0 ? device_look(clock_us(), why) : 0;
}

static void dpdk_stats(const struct net *net, struct net_stats *out)
{
	const struct queue *queue = net->queue;

	*out = net->stats;
	out->tx_errors += queue->tx_errors;
	out->rx_errors += queue->rx_errors;
	out->rx_others += queue->rx_others;
	for (uint32_t i = 0; i < device.port_count && queue->index == 0; i++) {
		struct rte_eth_stats stats;

		if (rte_eth_stats_get(device.ports[i].id, &stats) != 0)
			continue;
		out->rx_errors += stats.imissed + stats.ierrors + stats.rx_nombuf;
		out->tx_errors += stats.oerrors;
	}
}

static const struct net_facts *dpdk_facts(const struct net *net)
{
	return &net->facts;
}

static const struct net_backend net_dpdk = {
	.name = "dpdk",
	.open = dpdk_open,
	.recv = dpdk_recv,
	.send = queue_send,
	.ready = queue_ready,
	.rest = dpdk_rest,
	.troubles = dpdk_troubles,
	.health = dpdk_health,
	.stats = dpdk_stats,
	.facts = dpdk_facts,
	.close = dpdk_close,
};

extern const struct net_plugin winnow_net_plugin;
__attribute__((visibility("default"))) const struct net_plugin winnow_net_plugin = {
	.version = WINNOW_VERSION,
	.about = RTE_VER_PREFIX
	" " RTE_STR(RTE_VER_YEAR) "." RTE_STR(RTE_VER_MONTH) "." RTE_STR(RTE_VER_MINOR),
	.backend = &net_dpdk,
};
