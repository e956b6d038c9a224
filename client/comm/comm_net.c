// SPDX-License-Identifier: BSD-3-Clause
/* comm_net.c - a communicator's data path, and the size of its datagrams */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/comm/comm_state.h"

#define PAYLOAD_DEFAULT_MAX 8972
#define BUFFER_BYTES (16u << 20)
#define IDLE_US 50 /* the longest sleep of a thread that must poll a queue */
#define LIMIT_US 1000

/* What the paths to all of the aggregator's addresses carry: which one will be used shows later. */
static int probe_route(const struct winnow_comm *comm, const struct comm_peer *peer,
                       uint32_t *bytes, struct why *why)
{
	*bytes = UINT32_MAX;
	for (uint32_t i = 0; i < peer->at.count; i++) {
		uint32_t mtu = net_route_mtu(&peer->at.list[i], &comm->fixed.source);
		uint32_t headers = net_headers(&peer->at.list[i].ip);

		if (mtu > headers && mtu - headers < *bytes)
			*bytes = mtu - headers;
	}
	if (*bytes != UINT32_MAX)
		return WINNOW_OK;
	return why_set(why, WINNOW_ERR_UNREACHABLE, "no route to aggregator %s: %s", peer->name,
	               strerror(errno));
}

/*
 * The address to bind to. A socket is of both families, because data may use another family than control. A port has one
 * address, which is of IPv4 if each aggregator also has one of IPv4.
 */
static struct net_ip any_address(const struct winnow_comm *comm, bool port)
{
	struct net_ip any = port ? net_ipv4(0) : (struct net_ip){.scope = 0};

	for (uint32_t i = 0; i < comm->move.peer_count; i++) {
		const struct comm_peer *peer = &comm->peers[i];
		uint32_t four = 0;

		for (uint32_t k = 0; k < peer->at.count; k++)
			four += net_ip_is_v4(&peer->at.list[k].ip);
		if (four == 0)
			any = (struct net_ip){.scope = 0};
	}
	return any;
}

/* Chooses the back end, and its port's settings if it has one. */
static int net_choose(struct winnow_comm *comm, const struct winnow_config *config,
                      struct net_config *net, struct why *why)
{
	uint32_t bits;
	int err = net_backend_named(config->datapath != NULL ? config->datapath : "udp",
	                            &comm->fixed.backend, why);

	net->local.ip = any_address(comm, comm->fixed.backend != &net_udp);
	if (err == 0 && config->interface != NULL && comm->fixed.backend != &net_udp)
		err = why_set(why, -EINVAL, "interface is of datapath udp: dpdk has device");
	else if (err == 0 && config->interface != NULL)
		err = net_source_of(config->interface, &comm->fixed.source, why);
	if (!net_ip_none(&comm->fixed.source.ip))
		net->local.ip = comm->fixed.source.ip;
	if (comm->fixed.source.interface[0] != '\0')
		net->interface = comm->fixed.source.interface;
	if (err == 0 && comm->fixed.backend == &net_udp)
		return WINNOW_OK;
	comm->fixed.port.eal = config->eal;
	comm->fixed.port.device = config->device;
	comm->fixed.port.idle_us = IDLE_US;
	if (err == 0 && config->data_address != NULL)
		err = net_network(config->data_address, &net->local.ip,
		                  &comm->fixed.port.prefix_bits, why);
	if (err == 0 && config->gateway != NULL)
		err = net_network(config->gateway, &comm->fixed.port.gateway, &bits, why);
	net->port = &comm->fixed.port;
	return err != 0 ? WINNOW_ERR_INVALID : WINNOW_OK;
}

static int scratch_new(struct winnow_comm *comm, struct why *why)
{
	uint32_t payload = comm->move.config.payload;

	comm->fixed.scratch = malloc((size_t)NET_BURST_MAX * payload);
	if (comm->fixed.scratch == NULL)
		return why_set(why, WINNOW_ERR_MEMORY, "out of memory");
	for (uint32_t i = 0; i < NET_BURST_MAX; i++)
		comm->run.packets[i].scratch = comm->fixed.scratch + (size_t)i * payload;
	return WINNOW_OK;
}

int comm_open_net(struct winnow_comm *comm, const struct winnow_config *config, struct why *why)
{
	struct net_config net = {.buffer_bytes = BUFFER_BYTES, .dscp = config->dscp};
	uint32_t payload = config->payload != 0 ? config->payload : PAYLOAD_DEFAULT_MAX;
	int result = net_choose(comm, config, &net, why);

	for (uint32_t i = 0; i < comm->move.peer_count && result == WINNOW_OK; i++) {
		uint32_t bytes;

		result = probe_route(comm, &comm->peers[i], &bytes, why);
		if (result == WINNOW_OK && net.port == NULL && bytes < payload)
			payload = bytes;
	}
	if (result != WINNOW_OK)
		return result;
	net.payload_max = payload;
	if (comm->fixed.backend->open(&net, &comm->fixed.net, why) != 0)
		return WINNOW_ERR_SYSTEM;
	/* open() has copied these texts. Groups use the port later, when the texts may be gone. */
	comm->fixed.port.eal = comm->fixed.port.device = NULL;
	if (comm->fixed.backend->facts(comm->fixed.net)->payload_max < payload)
		payload = comm->fixed.backend->facts(comm->fixed.net)->payload_max;
	if (payload < WIRE_PAYLOAD_MIN)
		return why_set(why, WINNOW_ERR_INVALID,
		               "the network carries %u bytes a datagram, at least %d are needed",
		               payload, WIRE_PAYLOAD_MIN);
	comm->move.config.payload = payload;
	return scratch_new(comm, why);
}

/*
 * CONGESTION.md 5: "A worker has there at most what its limits let it send in a millisecond". TCP has as much, at twice
 * its pace, or two super-packets. A worker that has more there gets more of the link, whatever the windows are.
 */
void comm_net_turn(struct winnow_comm *comm, uint64_t now_us)
{
	uint32_t limit;

	if (now_us < comm->run.limit_due_us || comm->fixed.backend->limit == NULL)
		return;
	comm->run.limit_due_us = now_us + LIMIT_US;
	limit = session_own_queue(comm->session);
	if (limit == UINT32_MAX ||
	    (limit - limit / 4 < comm->run.limit && limit + limit / 4 > comm->run.limit))
		return;
	comm->run.limit = limit;
	comm->fixed.backend->limit(comm->fixed.net, limit);
}
