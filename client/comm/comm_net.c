// SPDX-License-Identifier: BSD-3-Clause
/* comm_net.c - a communicator's data path, and the size of its datagrams */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/comm/comm_state.h"

#define PAYLOAD_DEFAULT_MAX 8972
#define BUFFER_BYTES (16u << 20)
#define IDLE_US 50 /* the longest sleep where a queue must be polled */
#define LIMIT_US 1000

/* What the ways to this aggregator carry at least: by which address it will be reached shows later. */
static int probe_route(const struct winnow_comm *comm, const struct comm_peer *peer,
                       uint32_t *bytes, struct why *why)
{
	*bytes = UINT32_MAX;
	for (uint32_t i = 0; i < peer->address_count; i++) {
		uint32_t mtu = net_route_mtu(&peer->addresses[i], &comm->source);
		uint32_t headers = net_headers(&peer->addresses[i].ip);

		if (mtu > headers && mtu - headers < *bytes)
			*bytes = mtu - headers;
	}
	if (*bytes != UINT32_MAX)
		return WINNOW_OK;
	return why_set(why, WINNOW_ERR_UNREACHABLE, "no route to aggregator %s: %s", peer->name,
	               strerror(errno));
}

/*
 * A socket is of both families: data may come and go by another one than control. A port has one address, of
 * IPv4 if each aggregator has one of these as well.
 */
static struct net_ip any_address(const struct winnow_comm *comm, bool port)
{
	struct net_ip any = port ? net_ipv4(0) : (struct net_ip){.scope = 0};

	for (uint32_t i = 0; i < comm->peer_count; i++) {
		const struct comm_peer *peer = &comm->peers[i];
		uint32_t four = 0;

		for (uint32_t k = 0; k < peer->address_count; k++)
			four += net_ip_is_v4(&peer->addresses[k].ip);
		if (four == 0)
			any = (struct net_ip){.scope = 0};
	}
	return any;
}

/* Choose the back end, and its port's settings if it has one. */
static int comm_net_choose(struct winnow_comm *comm, const struct winnow_config *config,
                           struct net_config *net, struct why *why)
{
	uint32_t bits;
	int err = net_backend_named(config->datapath != NULL ? config->datapath : "udp",
	                            &comm->backend, why);

	net->local.ip = any_address(comm, comm->backend != &net_udp);
	if (err == 0 && config->interface != NULL && comm->backend != &net_udp)
		err = why_set(why, -EINVAL, "interface is of datapath udp: dpdk has device");
	else if (err == 0 && config->interface != NULL)
		err = net_source_of(config->interface, &comm->source, why);
	if (!net_ip_none(&comm->source.ip))
		net->local.ip = comm->source.ip;
	if (comm->source.interface[0] != '\0')
		net->interface = comm->source.interface;
	if (err == 0 && comm->backend == &net_udp)
		return WINNOW_OK;
	comm->port.eal = config->eal;
	comm->port.device = config->device;
	comm->port.idle_us = IDLE_US;
	if (err == 0 && config->data_address != NULL)
		err = net_network(config->data_address, &net->local.ip, &comm->port.prefix_bits,
		                  why);
	if (err == 0 && config->gateway != NULL)
		err = net_network(config->gateway, &comm->port.gateway, &bits, why);
	net->port = &comm->port;
	return err != 0 ? WINNOW_ERR_INVALID : WINNOW_OK;
}

static int scratch_new(struct winnow_comm *comm, struct why *why)
{
	uint32_t payload = comm->config.payload;

	comm->scratch = malloc((size_t)NET_BURST_MAX * payload);
	if (comm->scratch == NULL)
		return why_set(why, WINNOW_ERR_MEMORY, "out of memory");
	for (uint32_t i = 0; i < NET_BURST_MAX; i++)
		comm->packets[i].scratch = comm->scratch + (size_t)i * payload;
	return WINNOW_OK;
}

int comm_open_net(struct winnow_comm *comm, const struct winnow_config *config, struct why *why)
{
	struct net_config net = {.buffer_bytes = BUFFER_BYTES, .dscp = config->dscp};
	uint32_t payload = config->payload != 0 ? config->payload : PAYLOAD_DEFAULT_MAX;
	int result = comm_net_choose(comm, config, &net, why);

	for (uint32_t i = 0; i < comm->peer_count && result == WINNOW_OK; i++) {
		uint32_t bytes;

		result = probe_route(comm, &comm->peers[i], &bytes, why);
		if (result == WINNOW_OK && net.port == NULL && bytes < payload)
			payload = bytes;
	}
	if (result != WINNOW_OK)
		return result;
	net.payload_max = payload;
	if (comm->backend->open(&net, &comm->net, why) != 0)
		return WINNOW_ERR_SYSTEM;
	/* open() has copied these texts. Groups use the port later, when the texts may be gone. */
	comm->port.eal = comm->port.device = NULL;
	if (comm->backend->facts(comm->net)->payload_max < payload)
		payload = comm->backend->facts(comm->net)->payload_max;
	if (payload < WIRE_PAYLOAD_MIN)
		return why_set(why, WINNOW_ERR_INVALID,
		               "the network carries %u bytes a datagram, at least %d are needed",
		               payload, WIRE_PAYLOAD_MIN);
	comm->config.payload = payload;
	return scratch_new(comm, why);
}

/*
 * CONGESTION.md 6: "A worker has there at most what its limits let it send in a millisecond". TCP has as much, at twice
 * its pace, or two super-packets. Somebody with more there has more of the link, whatever the windows.
 */
void comm_net_turn(struct winnow_comm *comm, uint64_t now_us)
{
	uint32_t limit;

	if (now_us < comm->limit_due_us || comm->backend->limit == NULL)
		return;
	comm->limit_due_us = now_us + LIMIT_US;
	limit = session_own_queue(comm->session);
	if (limit == UINT32_MAX ||
	    (limit - limit / 4 < comm->limit && limit + limit / 4 > comm->limit))
		return;
	comm->limit = limit;
	comm->backend->limit(comm->net, limit);
}
