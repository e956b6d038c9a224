// SPDX-License-Identifier: BSD-3-Clause
/* receive.c - moves frames from a thread's queues to the nets that they are for */

#include <string.h>

#include "aggregator/dpdk/queue.h"

#define PORT_BURST 64

/* ---- other frames ---- */

static void take_neighbour(struct queue *queue, uint32_t port, const struct frame *frame)
{
	const struct frame_station us = device_station(port),
				   them = {.mac = frame->mac != NULL ? frame->mac : frame->from_mac,
	                                   .ip = frame->from_ip};
	uint8_t answer[FRAME_SMALL_BYTES_MAX];
	bool to_us = device_is(&frame->to_ip);
	struct neighbour known;

	queue->rx_others++;
	if (device.kernels)
		return;
	/* RFC 826 and 4861: news about hosts that we know; about others only if they speak to us. */
	if (frame->mac != NULL &&
	    (to_us || neighbours_find(device.neighbours, &frame->from_ip, &known)))
		neighbours_learn(device.neighbours, &frame->from_ip, frame->mac, (uint8_t)port,
		                 clock_us());
	if (frame->asks && to_us)
		queue_small(queue, port, answer, frame_answer(answer, &us, &them));
}

static void take_query(struct queue *queue, uint32_t port, const struct net_ip *group)
{
	const struct frame_station us = device_station(port);
	uint8_t report[FRAME_SMALL_BYTES_MAX];

	queue->rx_others++;
	for (const struct net *net = queue->nets; net != NULL; net = net->next) {
		const struct net_ip ours = net_listens(net);

		if (net_ip_none(&ours) || device.kernels ||
		    (!net_ip_none(group) && !net_ip_same(group, &ours)))
			continue;
		queue_small(queue, port, report, frame_report(report, &us, &ours));
	}
}

/* ---- datagrams ---- */

static struct net *net_for(struct queue *queue, const struct frame *frame)
{
	bool grouped = net_ip_multicast(&frame->to_ip);

	if (!grouped && !device_is(&frame->to_ip))
		return NULL;
	for (struct net *net = queue->nets; net != NULL; net = net->next)
		if (net->port == frame->to_port &&
		    (grouped ? net_ip_same(&net->group, &frame->to_ip) : net_ip_none(&net->group)))
			return net;
	return NULL;
}

/* No datagram to us is so long: a sender's kernel has left several for a card to split. */
static void take_merged(struct queue *queue, const struct frame *frame)
{
	const struct net_path from = {
		.to = {.ip = device_scoped(frame->from_ip), .port = frame->from_port}};
	struct net *net = net_for(queue, frame);

	queue->rx_errors++;
	if (net != NULL)
		trouble_note(&net->troubles, &from, NET_MERGED, 1);
}

/* The queue whose net a datagram is for. */
static uint32_t owner_of(const struct queue *queue, const struct frame *frame)
{
	if (device.queue_count == 1 || frame->payload_bytes <= NET_STEERING_BYTE)
		return queue->index;
	return frame->payload[NET_STEERING_BYTE] % device.queue_count;
}

/* Returns false if that queue has no room, and the frame is lost. */
static bool hand_over(struct queue *queue, uint32_t owner, struct rte_mbuf *mbuf)
{
	/* Its checksums have been checked. */
	mbuf->ol_flags |= RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
	if (rte_ring_mp_enqueue(device.handed_over[owner], mbuf) == 0)
		return true;
	queue->rx_errors++;
	return false;
}

/* Returns false if the mbuf is not wanted. */
static bool take_udp(struct queue *queue, struct rte_mbuf *mbuf, const struct frame *frame)
{
	struct queue_item *item = &queue->items[queue->count];
	uint32_t owner = owner_of(queue, frame);

	item->owner = net_for(queue, frame);
	if (item->owner == NULL) {
		queue->rx_others++;
		return false;
	}
	if (owner != queue->index)
		return hand_over(queue, owner, mbuf);
	item->in = (struct net_in){
		.data = frame->payload,
		.bytes = frame->payload_bytes,
		.from = {.ip = device_scoped(frame->from_ip), .port = frame->from_port},
		.local = frame->to_ip,
		.marked = frame->marked};
	item->owner->stats.received++;
	item->owner->stats.received_bytes += frame->payload_bytes;
	queue->count++;
	queue->mbufs[queue->mbuf_count++] = mbuf;
	return true;
}

static unsigned checked_by_port(const struct rte_mbuf *mbuf)
{
	uint64_t ip = mbuf->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;
	uint64_t udp = mbuf->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;

	return (ip == RTE_MBUF_F_RX_IP_CKSUM_GOOD ? FRAME_IP_CHECKED : 0) |
	       (udp == RTE_MBUF_F_RX_L4_CKSUM_GOOD ? FRAME_UDP_CHECKED : 0);
}

/* The port removed the tag of another VLAN. */
static bool foreign_vlan(const struct rte_mbuf *mbuf)
{
	return (mbuf->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) && (mbuf->vlan_tci & 0xfff) != 0;
}

/* Handles one frame. It is kept until the next burst if a net has it, and otherwise freed. */
static void frame_take(struct queue *queue, uint32_t port, struct rte_mbuf *mbuf)
{
	bool wanted = false;
	struct frame frame;

	/* The beginning of a frame that is too long for one piece says whose it is. */
	if (!rte_pktmbuf_is_contiguous(mbuf))
		(void)rte_pktmbuf_linearize(mbuf);
	frame_parse(rte_pktmbuf_mtod(mbuf, const uint8_t *), rte_pktmbuf_data_len(mbuf),
	            checked_by_port(mbuf), &frame);
	/* A packet socket also receives what the kernel sends, truncated if it is long. */
	if (frame.from_mac != NULL &&
	    (foreign_vlan(mbuf) ||
	     memcmp(frame.from_mac, device.ports[port].mac, FRAME_MAC_BYTES) == 0))
		frame.kind = FRAME_OTHER;
	if (frame.kind == FRAME_UDP && frame.payload_bytes > device.payload_max)
		frame.kind = FRAME_CUT;
	switch (frame.kind) {
	case FRAME_UDP:
		wanted = take_udp(queue, mbuf, &frame);
		break;
	case FRAME_CUT:
		take_merged(queue, &frame);
		break;
	case FRAME_NEIGHBOUR:
		take_neighbour(queue, port, &frame);
		break;
	case FRAME_QUERY:
		take_query(queue, port, &frame.to_ip);
		break;
	case FRAME_OTHER:
		queue->rx_others++;
		break;
	case FRAME_DAMAGED:
	case FRAME_PIECE:
		queue->rx_errors++;
		break;
	}
	if (!wanted)
		rte_pktmbuf_free(mbuf);
}

/* ---- bursts ---- */

static uint32_t fill_from_port(struct queue *queue, uint32_t index)
{
	const struct device_port *port = &device.ports[index];
	struct rte_mbuf *burst[PORT_BURST];
	uint16_t count;

	if (queue->index >= port->rx_queues)
		return 0;
	count = rte_eth_rx_burst(port->id, (uint16_t)queue->index, burst, PORT_BURST);
	for (uint16_t i = 0; i < count; i++) {
		if (i + 2 < count)
			rte_prefetch0(rte_pktmbuf_mtod(burst[i + 2], const void *));
		frame_take(queue, index, burst[i]);
	}
	return count;
}

static uint32_t fill_from_others(struct queue *queue)
{
	struct rte_ring *ring = device.handed_over[queue->index];
	struct rte_mbuf *burst[PORT_BURST];
	uint32_t count;

	if (ring == NULL)
		return 0;
	count = rte_ring_sc_dequeue_burst(ring, (void **)burst, PORT_BURST, NULL);
	for (uint32_t i = 0; i < count; i++)
		frame_take(queue, 0, burst[i]);
	return count;
}

static void queue_fill(struct queue *queue)
{
	uint32_t frames = 0;

	rte_pktmbuf_free_bulk(queue->mbufs, queue->mbuf_count);
	queue->mbuf_count = queue->count = queue->at = 0;
	/* Takes one burst a port: datagrams are then still in the cache when they are added. */
	for (uint32_t i = 0; i < device.port_count; i++)
		if (queue->count + PORT_BURST <= NET_BURST_MAX)
			frames += fill_from_port(queue, i);
	if (queue->count + PORT_BURST <= NET_BURST_MAX)
		frames += fill_from_others(queue);
	for (struct net *net = queue->nets; net != NULL && frames > 0; net = net->next)
		net->stats.rx_calls++;
	/* More may wait behind frames that were not for us. */
	if (frames > 0)
		queue->idle_since_us = 0;
}

uint32_t queue_receive(struct net *net, struct net_in in[], uint32_t max)
{
	struct queue *queue = net->queue;
	uint32_t count = 0;

	if (queue->at == queue->count)
		queue_fill(queue);
	while (count < max && queue->at < queue->count && queue->items[queue->at].owner == net)
		in[count++] = queue->items[queue->at++].in;
	return count;
}

void queue_forget(const struct net *net)
{
	struct queue *queue = net->queue;
	uint32_t left = queue->at;

	for (uint32_t i = queue->at; i < queue->count; i++)
		if (queue->items[i].owner != net)
			queue->items[left++] = queue->items[i];
	queue->count = left;
}
