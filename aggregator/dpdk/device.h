/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device.h - DPDK's ports, and everything that the queues of this process share
 *
 * There is one device, from the first open() of a net on, because DPDK starts once a process. The
 * nets see its ports as one: the same address on each, and a queue of each for every net.
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
	uint16_t id; /* DPDK's number */
	char name[DEVICE_NAME_BYTES];
	struct rte_eth_dev_info info;
	uint32_t if_index; /* the kernel's interface that it shares, or 0 */
	int single_fd;     /* from kernel_single_frames(), or below 0 */
	int groups_fd;     /* from kernel_hear_groups(), or below 0 */
	uint8_t mac[FRAME_MAC_BYTES];
	uint16_t rx_queues, tx_queues;
	bool chains;       /* it sends chains of mbufs */
	bool finishes_udp; /* it fills in UDP checksums */
	bool up;
	atomic_bool removed;                      /* DPDK says that it is gone */
	rte_spinlock_t tx_locks[DPDK_QUEUES_MAX]; /* for queues that several nets share */
};

extern struct device {
	struct net_ip ip, gateway; /* of one family, which all datagrams have */
	uint32_t prefix_bits;      /* bits of 128 that addresses of our network share */
	uint16_t udp_port;
	bool kernels; /* the kernel also has the address, so it answers and asks for us */
	uint32_t payload_max;
	_Atomic uint32_t payload_now; /* less once the kernel's MTU has shrunk */
	uint32_t driver_room;         /* bytes of each mbuf that a driver needs beside the frame */
	uint32_t port_count;
	struct device_port ports[DEVICE_PORTS_MAX];
	struct neighbours *neighbours;
	uint32_t queue_count;
	struct rte_mempool *pools[DPDK_QUEUES_MAX];
	struct rte_ring *handed_over[DPDK_QUEUES_MAX]; /* frames in another thread's queue */
	uint32_t idle_us;
	void (*log)(const char *level, const char *text);
	int reserved_fd; /* see kernel_reserve(); -1 if the kernel lacks the address */
	uint32_t users;  /* open nets */
	uint64_t looked_us;
	char gone[WHY_BYTES]; /* why nothing will arrive any more, or "" */
} device;

/*
 * device_get - starts the device for the first net. Later nets must ask for the same address and
 * queue count. Returns 0, or -errno with one line in `why`.
 */
int device_get(const struct net_config *config, struct why *why);

/* device_put - the last user stops the ports. */
void device_put(void);

/* device_log - writes a line to winnowd's log, and nothing in a library. */
void device_log(const char *level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* links.c: device_look - logs changes of links. Returns 0, or -ENODEV if a port has gone for good. */
int device_look(uint64_t now_us, struct why *why);

/* ---- environment.c: starts DPDK (EAL), with its log and its CPUs ---- */

/* environment_start - starts EAL once. Returns 0, -EALREADY, or -errno with one line in `why`. */
int environment_start(const struct net_config *config, struct why *why);

/* The CPUs that EAL was told to use for net `queue`, or NULL for any. */
const rte_cpuset_t *environment_cpus(uint32_t queue);

extern struct environment {
	bool mute;   /* keeps DPDK's complaints out of the log during attempts */
	bool in_use; /* a thread may still poll a port, so DPDK is not stopped at exit */
	/* DPDK's log lines above "info", which explain failures. */
	char last_line[WHY_BYTES], first_error[WHY_BYTES];
} environment;

/* ---- addresses ---- */

/* Frames know no scope. */
static inline bool device_is(const struct net_ip *ip)
{
	return memcmp(ip->bytes, device.ip.bytes, sizeof(ip->bytes)) == 0;
}

/* Adds the interface's scope to an address from a frame. */
static inline struct net_ip device_scoped(struct net_ip ip)
{
	ip.scope = net_ip_link_local(&ip) ? device.ip.scope : 0;
	return ip;
}

static inline bool device_on_link(const struct net_ip *ip)
{
	const uint8_t *a = ip->bytes, *b = device.ip.bytes;
	uint32_t whole = device.prefix_bits / 8, rest = device.prefix_bits % 8;

	if (net_ip_link_local(ip))
		return !net_ip_is_v4(&device.ip);
	return memcmp(a, b, whole) == 0 && (rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0);
}

/* Our addresses on this port. */
static inline struct frame_station device_station(uint32_t port)
{
	return (struct frame_station){.mac = device.ports[port].mac, .ip = device.ip};
}

#endif /* AGGREGATOR_DPDK_DEVICE_H */
