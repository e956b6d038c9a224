// SPDX-License-Identifier: BSD-3-Clause
/* links.c - watches ports: links that come and go, an MTU that shrinks, a port that is removed */

#include <errno.h>
#include <stdio.h>

#include "aggregator/dpdk/device.h"
#include "aggregator/dpdk/kernel.h"

#define LOOK_US 250000

static bool link_up(const struct device_port *port)
{
	struct rte_eth_link link;

	if (port->if_index != 0)
		return kernel_carrier(port->if_index);
	return rte_eth_link_get_nowait(port->id, &link) != 0 || link.link_status == RTE_ETH_LINK_UP;
}

/* Finds the largest datagram that the kernel's MTU has room for now. */
static void look_at_mtu(void)
{
	uint32_t least = device.payload_max, before = device.payload_now,
		 headers = net_headers(&device.ip);

	for (uint32_t i = 0; i < device.port_count; i++) {
		uint32_t mtu = kernel_mtu(device.ports[i].if_index);

		if (mtu > headers && mtu - headers < least)
			least = mtu - headers;
	}
	device.payload_now = least;
	if (least < before)
		device_log("warn",
		           "the MTU is smaller now: datagrams of more than %u bytes cannot be sent",
		           least);
}

int device_look(uint64_t now_us, struct why *why)
{
	if (device.gone[0] == '\0' && now_us - device.looked_us < LOOK_US)
		return 0;
	device.looked_us = now_us;
	look_at_mtu();
	for (uint32_t i = 0; i < device.port_count && device.gone[0] == '\0'; i++) {
		struct device_port *port = &device.ports[i];
		bool up = link_up(port);

		if (atomic_load(&port->removed) ||
		    (port->if_index != 0 && kernel_mtu(port->if_index) == 0)) {
			snprintf(device.gone, sizeof(device.gone), "port %s has been removed",
			         port->name);
			break;
		}
		if (up != port->up)
			device_log(up ? "info" : "warn", "port %s: the link is %s", port->name,
			           up ? "up" : "down");
		port->up = up;
	}
	return why_set(why, device.gone[0] != '\0' ? -ENODEV : 0, "%s", device.gone);
}
