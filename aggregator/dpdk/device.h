/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device.h - DPDK's ports, and all that the queues of this process share
 *
 * There is one, from the first open() of a net on: DPDK starts once a process. Its ports look
 * like one to the nets: the same address on each, a queue of each for every net.
 */
#ifndef AGGREGATOR_DPDK_DEVICE_H
#define AGGREGATOR_DPDK_DEVICE_H

#include <stdatomic.h>

#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_ring.h>
#include <rte_spinlock.h>

#include "aggregator/dpdk/frame.h"
#include "aggregator/dpdk/neighbours.h"
#include "bitmap/net/net.h"

#define DPDK_QUEUES_MAX 64 /* nets of a process */
#define DEVICE_PORTS_MAX 16
#define DEVICE_NAME_BYTES RTE_ETH_NAME_MAX_LEN

struct device_port {
	uint16_t id; /* DPDK's */
	char name[DEVICE_NAME_BYTES];
	struct rte_eth_dev_info info;
	uint32_t if_index; /* of the kernel's interface that it shares; 0: none */
	int single_fd;     /* see kernel_single_frames(); below 0: none */
	int groups_fd;     /* see kernel_hear_groups(); below 0: none */
	uint8_t mac[FRAME_MAC_BYTES];
	uint16_t rx_queues, tx_queues;
	bool chains;       /* sends chains of mbufs */
	bool finishes_udp; /* fills in UDP checksums */
	bool up;
	atomic_bool removed;                      /* DPDK says so */
	rte_spinlock_t tx_locks[DPDK_QUEUES_MAX]; /* of queues that several nets share */
};

struct device {
	struct net_ip ip, gateway; /* of one family, which all datagrams are of */
	uint32_t prefix_bits;      /* bits of 128 that addresses of our network share */
	uint16_t udp_port;
	bool kernels; /* the kernel also has the address: it answers and asks for us */
	uint32_t payload_max;
	_Atomic uint32_t payload_now; /* less, when the kernel's MTU has become smaller */
	uint32_t driver_room;         /* bytes of each mbuf that a driver takes besides the frame */
	uint32_t port_count;
	struct device_port ports[DEVICE_PORTS_MAX];
	struct neighbours *neighbours;
	uint32_t queue_count;
	struct rte_mempool *pools[DPDK_QUEUES_MAX];
	struct rte_ring *handed_over[DPDK_QUEUES_MAX]; /* frames that came to another's queue */
	uint32_t idle_us;
	void (*log)(const char *level, const char *text);
	int reserved_fd; /* keeps the kernel quiet; -1: not its address */
	uint32_t users;  /* open nets */
	uint64_t looked_us;
	char gone[WHY_BYTES]; /* why nothing will come any more; "" while all is well */
};

/*
 * device_get - the device; starts it for the first net. Later ones must ask for the same address
 * and queue count. On failure -errno and one line in `why`.
 */
int device_get(const struct net_config *config, struct device **out, struct why *why);

/* device_put - the last one stops the ports. */
void device_put(struct device *device);

/* device_log - a line to winnowd's log; nothing in a library. */
void device_log(const struct device *device, const char *level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* links.c: device_look - links that come and go, said once each. -ENODEV: a port has gone for good. */
int device_look(struct device *device, uint64_t now_us, struct why *why);

/* ---- environment.c: DPDK's own start (EAL), its log, the CPUs that it was told to use ---- */

/* environment_start - once; -EALREADY when it runs. On failure -errno and one line in `why`. */
int environment_start(const struct net_config *config, struct why *why);

/* The CPUs that EAL was told to use for net `queue`; NULL: any. */
const rte_cpuset_t *environment_cpus(uint32_t queue);

extern struct environment {
	bool mute;   /* DPDK's complaints are only remembered: something is being tried out */
	bool in_use; /* A thread may still poll a port: the process ends around it. */
	/* Of DPDK's log above "info": why something has failed. */
	char last_line[WHY_BYTES], first_error[WHY_BYTES];
} environment;

/* ---- addresses ---- */

/* Frames know no scope. */
static inline bool device_is(const struct device *device, const struct net_ip *ip)
{
	return memcmp(ip->bytes, device->ip.bytes, sizeof(ip->bytes)) == 0;
}

/* Of which interface an address is that has come by a frame. */
static inline struct net_ip device_scoped(const struct device *device, struct net_ip ip)
{
	ip.scope = net_ip_link_local(&ip) ? device->ip.scope : 0;
	return ip;
}

static inline bool device_on_link(const struct device *device, const struct net_ip *ip)
{
	const uint8_t *a = ip->bytes, *b = device->ip.bytes;
	uint32_t whole = device->prefix_bits / 8, rest = device->prefix_bits % 8;

	if (net_ip_link_local(ip))
		return !net_ip_is_v4(&device->ip);
	return memcmp(a, b, whole) == 0 && (rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0);
}

/* What the port of this number says that it is. */
static inline struct frame_station device_station(const struct device *device, uint32_t port)
{
	return (struct frame_station){.mac = device->ports[port].mac, .ip = device->ip};
}

#endif /* AGGREGATOR_DPDK_DEVICE_H */
