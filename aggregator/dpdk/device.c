// SPDX-License-Identifier: BSD-3-Clause
/* device.c - see device.h: finds ports and sets them up; links.c watches them */

#include "aggregator/dpdk/device.h"

#include <errno.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_devargs.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf_pool_ops.h>

#include "aggregator/dpdk/kernel.h"

#define DESCRIPTORS 1024
#define POOL_MBUFS 8191
#define POOL_CACHE 256
#define HANDED_OVER 4096
#define DRIVER_AF_PACKET "net_af_packet"
#define DRIVER_AF_XDP "net_af_xdp"
#define DRIVER_MEMIF "net_memif"
#define MEMIF_BUFFER 2048 /* unless bsize= says otherwise */
#define PREFIX_FOUR 24    /* prefix of an IPv4 network of unknown length */
#define PREFIX_SIX 64
#define XDP_ROOM 256 /* the kernel keeps these bytes free before a frame: XDP_PACKET_HEADROOM */
#define ROOM_MAX 32768

struct device device = {.reserved_fd = -1};

void device_log(const char *level, const char *format, ...)
{
	char text[WHY_BYTES];
	va_list args;

	if (device.log == NULL)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	device.log(level, text);
}

static int port_explain(struct why *why, int err, const char *what, const struct device_port *port)
{
	return why_set(why, err, "port %s: %s: %s%s%.120s", port->name, what, rte_strerror(-err),
	               environment.last_line[0] != '\0' ? "; " : "", environment.last_line);
}

/* ---- one port ---- */

static int port_removed(uint16_t port_id, enum rte_eth_event_type type, void *context, void *unused)
{
	struct device_port *port = context;

	(void)port_id;
	(void)type;
	(void)unused;
	atomic_store(&port->removed, true);
	return 0;
}

/*
 * Makes a pool of mbufs without gaps between them, or returns NULL and rte_errno.
 * rte_pktmbuf_pool_create() would make mbufs larger to spread them over memory channels. An AF_XDP
 * socket takes a whole mbuf as its frame, at most a page: with the padding, frames of the MTU that
 * native XDP allows (3,498) would no longer fit.
 */
static struct rte_mempool *pool_new(const char *name, uint32_t count, uint32_t room)
{
	struct rte_pktmbuf_pool_private private = {.mbuf_data_room_size =
	                                                   (uint16_t)(room + RTE_PKTMBUF_HEADROOM)};
	uint32_t bytes = (uint32_t)sizeof(struct rte_mbuf) + private.mbuf_data_room_size;
	struct rte_mempool *pool =
		rte_mempool_create_empty(name, count, bytes, POOL_CACHE, sizeof(private),
	                                 SOCKET_ID_ANY, RTE_MEMPOOL_F_NO_SPREAD);
	int err;

	if (pool == NULL)
		return NULL;
	err = rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(), NULL);
	if (err == 0) {
		rte_pktmbuf_pool_init(pool, &private);
		err = rte_mempool_populate_default(pool);
	}
	if (err < 0) {
		rte_mempool_free(pool);
		rte_errno = -err;
		return NULL;
	}
	rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
	return pool;
}

/*
 * Makes mbufs for each queue of all ports, with room for one frame. Some drivers need more room:
 * for the whole of a frame in their own ring.
 */
static int pools_new(uint32_t room, struct why *why)
{
	char name[RTE_MEMPOOL_NAMESIZE];

	for (uint32_t i = 0; i < device.queue_count; i++) {
		rte_mempool_free(device.pools[i]);
		snprintf(name, sizeof(name), "winnow-%u-%u", i, room);
		device.pools[i] = pool_new(name, POOL_MBUFS, room);
		if (device.pools[i] != NULL)
			continue;
		return why_set(
			why, -ENOMEM,
			"no memory for %d frames of %u bytes: give EAL more (-m, huge pages): %s",
			POOL_MBUFS, room, rte_strerror(rte_errno));
	}
	return 0;
}

static bool driven_by(const struct device_port *port, const char *driver)
{
	return strcmp(port->info.driver_name, driver) == 0;
}

static void port_configuration(const struct device_port *port, struct rte_eth_conf *out)
{
	const struct rte_eth_dev_info *info = &port->info;
	static const uint64_t rx = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
	static const uint64_t tx = RTE_ETH_TX_OFFLOAD_UDP_CKSUM | RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	static const uint64_t spread = RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV6_UDP;

	*out = (struct rte_eth_conf){0};
	out->rxmode.offloads = info->rx_offload_capa & rx;
	out->txmode.offloads = info->tx_offload_capa & tx;
	if (port->rx_queues > 1 && (info->flow_type_rss_offloads & spread) != 0) {
		out->rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		out->rx_adv_conf.rss_conf.rss_hf = info->flow_type_rss_offloads & spread;
	}
}

/* Tries the largest frames: as large as we want, as the driver says, or as Ethernet's are. */
static int port_configure(struct device_port *port)
{
	uint32_t wanted = device.payload_max + net_headers(&device.ip);
	uint32_t mtus[] = {wanted, RTE_MIN(wanted, (uint32_t)port->info.max_mtu), 0};
	struct rte_eth_conf conf;
	int err = -EINVAL;

	port_configuration(port, &conf);
	/* Memif's 24.11 driver marks its ring's places as parts of chains, and leaves the marks there. */
	port->chains = (conf.txmode.offloads & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0 &&
	               !driven_by(port, DRIVER_MEMIF);
	port->finishes_udp = (conf.txmode.offloads & RTE_ETH_TX_OFFLOAD_UDP_CKSUM) != 0;
	for (size_t i = 0; i < RTE_DIM(mtus) && err != 0; i++) {
		conf.rxmode.mtu = mtus[i];
		err = rte_eth_dev_configure(port->id, port->rx_queues, port->tx_queues, &conf);
	}
	return err;
}

static int queues_set(struct device_port *port, uint16_t rx_count, uint16_t tx_count)
{
	int socket = rte_eth_dev_socket_id(port->id), err = 0;

	for (uint16_t i = 0; i < port->rx_queues && err == 0; i++)
		err = rte_eth_rx_queue_setup(port->id, i, rx_count, (unsigned)socket, NULL,
		                             device.pools[i]);
	for (uint16_t i = 0; i < port->tx_queues && err == 0; i++)
		err = rte_eth_tx_queue_setup(port->id, i, tx_count, (unsigned)socket, NULL);
	return err;
}

/*
 * An AF_XDP socket receives one queue of the interface. Frames in a queue without a socket would go
 * to the kernel, where nobody wants them. And the kernel silently loses frames that cross a page,
 * unless the next page follows in memory, as it does in a huge page.
 */
static int check_af_xdp(const struct device_port *port, struct why *why)
{
	uint32_t queues = kernel_rx_queues(port->if_index);
	char name[IF_NAMESIZE] = "";

	if (!driven_by(port, DRIVER_AF_XDP))
		return 0;
	if (!rte_eal_has_hugepages())
		return why_set(why, -EINVAL,
		               "port %s: AF_XDP needs huge pages: sysctl vm.nr_hugepages=300, and "
		               "--in-memory instead of --no-huge",
		               port->name);
	if (queues <= port->rx_queues)
		return 0;
	if_indextoname(port->if_index, name);
	return why_set(why, -EINVAL,
	               "port %s: %s has %u receive queues, but only %u would be read: ethtool "
	               "-L %s combined %u (or rx %u), or more --threads and queue_count",
	               port->name, name, queues, port->rx_queues, name, port->rx_queues,
	               port->rx_queues);
}

static int port_set_up(struct device_port *port, struct why *why)
{
	uint16_t rx_count = DESCRIPTORS, tx_count = DESCRIPTORS;
	struct rte_ether_addr mac;
	/* The other side of a memif sets the number of queues; at least one exists. */
	uint32_t queues = driven_by(port, DRIVER_MEMIF) ? 1 : device.queue_count;
	int err;

	port->rx_queues = (uint16_t)RTE_MIN(queues, (uint32_t)port->info.max_rx_queues);
	port->tx_queues = (uint16_t)RTE_MIN(queues, (uint32_t)port->info.max_tx_queues);
	err = check_af_xdp(port, why);
	if (err != 0)
		return err;
	err = port_configure(port);
	if (err != 0)
		return port_explain(why, err, "cannot be configured", port);
	rte_eth_dev_adjust_nb_rx_tx_desc(port->id, &rx_count, &tx_count);
	err = queues_set(port, rx_count, tx_count);
	if (err != 0) {
		port_explain(why, err,
		             driven_by(port, DRIVER_AF_XDP)
		                     ? "cannot have queues (is an XDP program there? ip link show)"
		                     : "cannot have queues",
		             port);
		return -ENOBUFS;
	}
	err = rte_eth_macaddr_get(port->id, &mac);
	if (err != 0)
		return port_explain(why, err, "has no address", port);
	memcpy(port->mac, mac.addr_bytes, sizeof(port->mac));
	for (uint32_t i = 0; i < DPDK_QUEUES_MAX; i++)
		rte_spinlock_init(&port->tx_locks[i]);
	rte_eth_dev_callback_register(port->id, RTE_ETH_EVENT_INTR_RMV, port_removed, port);
	return 0;
}

/* ---- all ports ---- */

static bool wanted_port(const char *name, const struct device_port *port)
{
	uint16_t named;

	if (name == NULL || (rte_eth_dev_get_port_by_name(name, &named) == 0 && named == port->id))
		return true;
	return port->if_index != 0 && port->if_index == if_nametoindex(name);
}

static int ports_find(const char *name, struct why *why)
{
	uint16_t id;

	device.port_count = 0;
	RTE_ETH_FOREACH_DEV(id)
	{
		struct device_port *port = &device.ports[device.port_count];

		if (device.port_count == DEVICE_PORTS_MAX)
			break;
		memset(port, 0, sizeof(*port));
		port->id = id;
		port->single_fd = port->groups_fd = -1;
		if (rte_eth_dev_info_get(id, &port->info) != 0)
			continue;
		port->if_index = port->info.if_index;
		rte_eth_dev_get_name_by_port(id, port->name);
		device.port_count += wanted_port(name, port);
	}
	if (device.port_count > 0) {
		environment.last_line[0] = environment.first_error[0] = '\0';
		return 0;
	}
	/* DPDK starts without a driver that was asked for the impossible. */
	return why_set(why, -ENODEV,
	               "DPDK has no port%s%.60s: see --eal, dpdk-devbind.py --status%s%.120s",
	               name != NULL ? " " : "", name != NULL ? name : "",
	               environment.first_error[0] != '\0' ? "; " : "", environment.first_error);
}

/* Begins with room for a frame; drivers with frames of their own get up to all UDP's. */
static int ports_set_up(struct why *why)
{
	uint32_t frame = device.payload_max + frame_udp_bytes(&device.ip) + device.driver_room;
	int err = -ENOBUFS;

	for (uint32_t room = RTE_ALIGN(frame, 64u); room <= ROOM_MAX && err == -ENOBUFS;
	     room = rte_align32pow2(room + 1)) {
		err = pools_new(room, why);
		for (uint32_t i = 0; i < device.port_count && err == 0; i++)
			err = port_set_up(&device.ports[i], why);
	}
	return err;
}

/* A packet socket receives whole what the sender's kernel has left for a card to split. */
static void ask_for_single_frames(struct device_port *port)
{
	char name[IF_NAMESIZE] = "";

	port->single_fd = kernel_single_frames(port->if_index);
	if_indextoname(port->if_index, name);
	if (port->single_fd >= 0)
		device_log("info",
		           "port %s: %s is a veth: an XDP program that lets everything pass has "
		           "its other end split super-packets",
		           port->name, name);
	else if (port->single_fd != -ENOTSUP && port->single_fd != -EBUSY)
		device_log("warn",
		           "port %s: %s is a veth, and no XDP program can be put there (%s), so "
		           "super-packets arrive whole and are lost: on the senders run ethtool -K "
		           "IFACE tx-udp-segmentation off",
		           port->name, name, strerror(-port->single_fd));
}

/*
 * Results may go to any group, as do IPv6's questions for our address. A driver without filters
 * needs none set, and a driver that cannot set them leaves them to the kernel.
 */
static void hear_groups(struct device_port *port)
{
	if (rte_eth_allmulticast_enable(port->id) != 0 && port->if_index != 0 && !device.kernels)
		port->groups_fd = kernel_hear_groups(port->if_index);
}

static int ports_start(struct why *why)
{
	for (uint32_t i = 0; i < device.port_count; i++) {
		struct device_port *port = &device.ports[i];
		int err = rte_eth_dev_start(port->id);

		if (err != 0)
			return port_explain(why, err, "does not start", port);
		hear_groups(port);
		port->up = true;
		if (driven_by(port, DRIVER_AF_PACKET))
			ask_for_single_frames(port);
	}
	return 0;
}

/* ---- addresses ---- */

/* Checks that the addresses were given and fit together. */
static int check_addresses(struct why *why)
{
	bool v4 = net_ip_is_v4(&device.ip);

	if (net_ip_none(&device.ip))
		return why_set(why, -EADDRNOTAVAIL,
		               "no address for datagrams: the port's interface has none; give "
		               "--data-address ADDR/BITS");
	if (!device.kernels && (net_ip_link_local(&device.ip) || net_ip_multicast(&device.ip)))
		return why_set(
			why, -EADDRNOTAVAIL,
			"--data-address is valid on one link only, or a group: give one that "
			"all workers can reach");
	if (!net_ip_none(&device.gateway) && net_ip_is_v4(&device.gateway) != v4)
		return why_set(
			why, -EINVAL,
			"--gateway is an IPv%d address, but the address for datagrams is IPv%d",
			v4 ? 6 : 4, v4 ? 4 : 6);
	return 0;
}

static int device_address(const struct net_config *config, struct why *why)
{
	uint32_t bits = config->port->prefix_bits, kernel_bits;
	bool v4;
	int err;

	device.ip = config->local.ip;
	device.kernels = false;
	for (uint32_t i = 0; i < device.port_count && !device.kernels; i++)
		device.kernels = kernel_address(device.ports[i].if_index, &device.ip, &kernel_bits);
	if (device.kernels && bits == 0)
		bits = kernel_bits;
	v4 = net_ip_is_v4(&device.ip);
	if (bits == 0)
		bits = v4 ? PREFIX_FOUR : PREFIX_SIX;
	device.prefix_bits = bits + (v4 ? 96 : 0);
	device.gateway = config->port->gateway;
	err = check_addresses(why);
	if (err != 0)
		return err;
	if (net_ip_none(&device.gateway) && device.kernels)
		device.gateway = kernel_gateway(device.ports[0].if_index, !v4);
	device.udp_port = config->local.port;
	if (device.kernels) {
		device.reserved_fd = kernel_reserve(&device.ip, &device.udp_port);
		if (device.reserved_fd < 0)
			return why_set(why, device.reserved_fd, "cannot bind UDP port %u: %s",
			               config->local.port, strerror(-device.reserved_fd));
	} else if (device.udp_port == 0) {
		device.udp_port = (uint16_t)(49152 + getpid() % 16384);
	}
	return 0;
}

/*
 * The size of a buffer in the port's shared memory; 0 without one. A 22.11 driver loses its place
 * in a ring that fills up within a frame of several buffers, so each frame gets one.
 */
static uint32_t memif_buffer(const struct device_port *port)
{
	const struct rte_devargs *args = rte_dev_devargs(port->info.device);
	const char *size = args != NULL && args->args != NULL ? strstr(args->args, "bsize=") : NULL;

	if (!driven_by(port, DRIVER_MEMIF))
		return 0;
	return size != NULL ? (uint32_t)strtoul(size + strlen("bsize="), NULL, 10) : MEMIF_BUFFER;
}

/* The kernel decides the MTU of a shared interface. */
static void limit_payload(const struct device_port *port)
{
	uint32_t frame = memif_buffer(port), mtu = kernel_mtu(port->if_index);
	uint32_t headers = frame_udp_bytes(&device.ip), ip_headers = net_headers(&device.ip);

	if (driven_by(port, DRIVER_AF_XDP))
		device.driver_room = XDP_ROOM;
	if (frame > headers && frame - headers < device.payload_max)
		device.payload_max = frame - headers;
	if (mtu > ip_headers && mtu - ip_headers < device.payload_max)
		device.payload_max = mtu - ip_headers;
}

/* ---- the device ---- */

static int rings_new(struct why *why)
{
	for (uint32_t i = 0; i < device.queue_count && device.queue_count > 1; i++) {
		char name[RTE_RING_NAMESIZE];

		snprintf(name, sizeof(name), "winnow-over-%u", i);
		device.handed_over[i] =
			rte_ring_create(name, HANDED_OVER, SOCKET_ID_ANY, RING_F_SC_DEQ);
		if (device.handed_over[i] == NULL)
			return why_set(why, -ENOMEM, "no memory for a ring between threads");
	}
	return 0;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void shut_down(void)
{
	for (uint32_t i = 0; i < device.port_count; i++) {
		rte_eth_dev_callback_unregister(device.ports[i].id, RTE_ETH_EVENT_INTR_RMV,
		                                port_removed, &device.ports[i]);
		rte_eth_dev_stop(device.ports[i].id);
		close_fd(&device.ports[i].single_fd);
		close_fd(&device.ports[i].groups_fd);
	}
	for (uint32_t i = 0; i < DPDK_QUEUES_MAX; i++) {
		rte_ring_free(device.handed_over[i]);
		device.handed_over[i] = NULL;
	}
	neighbours_free(device.neighbours);
	device.neighbours = NULL;
	close_fd(&device.reserved_fd);
}

static int device_start(const struct net_config *config, struct why *why)
{
	int err = environment_start(config, why);

	if (err != 0 && err != -EALREADY)
		return err;
	device.log = config->port->log;
	device.idle_us = config->port->idle_us;
	device.payload_max = config->payload_max;
	device.driver_room = 0;
	device.queue_count = config->queue_count > 0 ? config->queue_count : 1;
	device.gone[0] = '\0';
	/* Drivers that refuse the first of several attempts are no news. */
	environment.mute = true;
	device.neighbours = neighbours_new();
	why_set(why, -ENOMEM, "out of memory");
	err = device.neighbours != NULL ? ports_find(config->port->device, why) : -ENOMEM;
	if (err == 0)
		err = device_address(config, why);
	for (uint32_t i = 0; i < device.port_count && err == 0; i++)
		limit_payload(&device.ports[i]);
	device.payload_now = device.payload_max;
	if (err == 0)
		err = rings_new(why);
	if (err == 0)
		err = ports_set_up(why);
	if (err == 0)
		err = ports_start(why);
	environment.mute = false;
	if (err != 0)
		shut_down();
	/* The drivers' messages about a missing capability do not name it. */
	if (err == -EPERM || (err != 0 && strstr(why->text, "AF_PACKET") != NULL))
		why_set(why, err, "%s; this needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_IPC_LOCK",
		        why->text);
	return err;
}

int device_get(const struct net_config *config, struct why *why)
{
	int err = 0;

	if (config->queue_count > DPDK_QUEUES_MAX)
		return why_set(why, -EINVAL, "the dpdk datapath has at most %d threads",
		               DPDK_QUEUES_MAX);
	if (device.users == 0)
		err = device_start(config, why);
	if (err != 0)
		return err;
	device.users++;
	environment.in_use = true;
	return 0;
}

void device_put(void)
{
	if (--device.users > 0)
		return;
	shut_down();
	environment.in_use = false;
}
