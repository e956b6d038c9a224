// SPDX-License-Identifier: BSD-3-Clause
/*
 * transmit.c - makes frames of datagrams, and sends them
 *
 * A payload is copied once, into an mbuf. For one receiver the headers go before it. For several,
 * each gets a small mbuf with its own headers in front of the same payload, if the port can send
 * chains; otherwise it gets a copy.
 */

#include <errno.h>
#include <string.h>

#include "aggregator/dpdk/kernel.h"
#include "aggregator/dpdk/queue.h"

#define HOPS 64
#define HOPS_MULTICAST 1
#define ASK_AGAIN_US 50000
#define STALE_US 30000000  /* a neighbour that has been silent for so long is asked for again */
#define MISSING_US 1000000 /* a host that has not answered for so long is not there */

/* ---- frames to ports ---- */

static uint32_t port_burst(struct queue *queue, uint32_t index, struct rte_mbuf *frames[],
                           uint32_t count)
{
	struct device_port *port = &device.ports[index];
	uint16_t tx_queue = (uint16_t)(queue->index % port->tx_queues);
	bool shared = port->tx_queues < device.queue_count;
	uint32_t sent = 0;
	uint16_t now;

	if (shared)
		rte_spinlock_lock(&port->tx_locks[tx_queue]);
	do {
		now = rte_eth_tx_burst(port->id, tx_queue, frames + sent, (uint16_t)(count - sent));
		sent += now;
	} while (now > 0 && sent < count);
	if (shared)
		rte_spinlock_unlock(&port->tx_locks[tx_queue]);
	return sent;
}

/* Sends all frames, and keeps those that the port has no room for. */
static void port_emit(struct queue *queue, uint32_t port, struct rte_mbuf *frames[], uint32_t count)
{
	uint32_t sent = 0, kept = queue->kept_count[port];

	if (kept == 0 && count > 0) /* not all drivers look at the count first */
		sent = port_burst(queue, port, frames, count);
	for (; sent < count && kept < NET_BURST_MAX; sent++)
		queue->kept[port][kept++] = frames[sent];
	queue->kept_count[port] = kept;
	if (sent < count) {
		queue->tx_errors += count - sent;
		rte_pktmbuf_free_bulk(frames + sent, count - sent);
	}
}

bool queue_ready(struct net *net)
{
	struct queue *queue = net->queue;
	bool empty = true;

	for (uint32_t i = 0; i < device.port_count; i++) {
		uint32_t count = queue->kept_count[i], sent;

		if (count == 0)
			continue;
		sent = port_burst(queue, i, queue->kept[i], count);
		memmove(queue->kept[i], queue->kept[i] + sent,
		        (count - sent) * sizeof(queue->kept[i][0]));
		queue->kept_count[i] = count - sent;
		empty = empty && sent == count;
	}
	return empty;
}

void queue_small(struct queue *queue, uint32_t port, const uint8_t *frame, uint32_t bytes)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(queue->headers);
	char *data = mbuf != NULL ? rte_pktmbuf_append(mbuf, (uint16_t)bytes) : NULL;

	if (data == NULL) {
		rte_pktmbuf_free(mbuf);
		return;
	}
	memcpy(data, frame, bytes);
	if (port_burst(queue, port, &mbuf, 1) == 0)
		rte_pktmbuf_free(mbuf);
}

/* ---- neighbours ---- */

/* The recent question for `ip`, or the oldest one to make room for it. */
static struct queue_asked *asked_of(struct queue *queue, const struct net_ip *ip, uint64_t now_us)
{
	struct queue_asked *asked = queue->asked;

	for (uint32_t i = 0; i < QUEUE_ASKED_MAX; i++) {
		if (net_ip_same(&queue->asked[i].ip, ip) &&
		    now_us - queue->asked[i].when_us < MISSING_US)
			return &queue->asked[i];
		if (queue->asked[i].when_us < asked->when_us)
			asked = &queue->asked[i];
	}
	*asked = (struct queue_asked){.ip = *ip, .since_us = now_us};
	return asked;
}

/* Asks who has `ip`. Returns true if the kernel knew it at once. */
static bool neighbour_ask(struct queue *queue, const struct net_ip *ip, uint64_t now_us)
{
	uint8_t frame[FRAME_SMALL_BYTES_MAX], mac[FRAME_MAC_BYTES];
	struct queue_asked *asked = asked_of(queue, ip, now_us);

	if (now_us - asked->when_us < ASK_AGAIN_US)
		return false;
	asked->when_us = now_us;
	for (uint32_t i = 0; i < device.port_count; i++) {
		const struct frame_station us = device_station(i);
		struct device_port *port = &device.ports[i];

		if (!device.kernels) {
			queue_small(queue, i, frame, frame_ask(frame, &us, ip));
		} else if (kernel_neighbour(port->if_index, ip, mac)) {
			neighbours_learn(device.neighbours, ip, mac, (uint8_t)i, now_us);
			return true;
		} else {
			kernel_ask(port->if_index, ip);
		}
	}
	return false;
}

static bool hop_find(struct queue *queue, const struct net_ip *hop, struct neighbour *out)
{
	struct neighbours *neighbours = device.neighbours;
	uint64_t now_us = clock_us();

	if (neighbours_find(neighbours, hop, out)) {
		if (now_us - out->heard_us > STALE_US && now_us > out->heard_us)
			neighbour_ask(queue, hop, now_us);
		return true;
	}
	return neighbour_ask(queue, hop, now_us) && neighbours_find(neighbours, hop, out);
}

/* Returns the next hop, or NULL if there is no route. */
static const struct net_ip *hop_to(const struct net_ip *ip)
{
	if (net_ip_is_v4(ip) != net_ip_is_v4(&device.ip))
		return NULL;
	if (device_on_link(ip))
		return ip;
	return net_ip_none(&device.gateway) ? NULL : &device.gateway;
}

/* The address is not known yet, so the datagrams are lost like others, and asked for again. */
static void datagrams_lose(struct net *net, const struct net_path *path, const struct net_ip *hop,
                           uint32_t count)
{
	uint64_t now_us = clock_us();

	net->stats.tx_errors += count;
	if (hop == NULL)
		trouble_note(&net->troubles, path, ENETUNREACH, count);
	else if (now_us - asked_of(net->queue, hop, now_us)->since_us >= MISSING_US)
		trouble_note(&net->troubles, path, EHOSTUNREACH, count);
}

/* ---- datagrams to frames ---- */

static void datagram_gather(struct rte_mbuf *mbuf, const struct net_out *out)
{
	char *data = rte_pktmbuf_append(mbuf, (uint16_t)out->bytes);

	for (uint32_t i = 0; i < out->piece_count; i++) {
		memcpy(data, out->pieces[i].iov_base, out->pieces[i].iov_len);
		data += out->pieces[i].iov_len;
	}
}

/* Copies payloads, as memory permits. Returns how many there are, and how many are too large. */
static uint32_t payloads_make(struct queue *queue, const struct net_out out[], uint32_t count,
                              struct net_stats *stats, uint32_t *too_large)
{
	struct rte_mempool *pool = device.pools[queue->index];
	uint32_t made = 0, bytes_max = device.payload_now;

	for (uint32_t i = 0; i < count; i++) {
		struct rte_mbuf *mbuf = NULL;

		if (out[i].bytes <= bytes_max)
			mbuf = rte_pktmbuf_alloc(pool);
		else
			++*too_large;
		if (mbuf == NULL) {
			stats->tx_errors++;
			continue;
		}
		datagram_gather(mbuf, &out[i]);
		queue->sums[made] = frame_sum(rte_pktmbuf_mtod(mbuf, const void *), out[i].bytes);
		queue->payloads[made++] = mbuf;
	}
	return made;
}

/* Makes a frame's mbuf with room for headers, or NULL. The payload stays ours. */
static struct rte_mbuf *frame_copy(struct queue *queue, struct rte_mbuf *payload, bool chains)
{
	uint16_t bytes = rte_pktmbuf_data_len(payload);
	struct rte_mbuf *frame =
		rte_pktmbuf_alloc(chains ? queue->headers : device.pools[queue->index]);

	if (frame == NULL)
		return NULL;
	if (!chains) {
		memcpy(rte_pktmbuf_append(frame, bytes), rte_pktmbuf_mtod(payload, const void *),
		       bytes);
		return frame;
	}
	rte_mbuf_refcnt_update(payload, 1);
	frame->next = payload;
	frame->nb_segs = 2;
	frame->pkt_len = bytes;
	return frame;
}

static void headers_write(struct rte_mbuf *frame, const struct frame_route *route, uint64_t sum,
                          bool finish)
{
	uint32_t bytes = rte_pktmbuf_pkt_len(frame);
	uint32_t headers = frame_udp_bytes(&route->to_ip);
	uint8_t *head = (uint8_t *)rte_pktmbuf_prepend(frame, (uint16_t)headers);
	bool v4 = net_ip_is_v4(&route->to_ip);

	frame_udp(head, route, bytes, sum, finish);
	frame->l2_len = RTE_ETHER_HDR_LEN;
	frame->l3_len = v4 ? sizeof(struct rte_ipv4_hdr) : sizeof(struct rte_ipv6_hdr);
	frame->ol_flags = 0;
	if (finish)
		frame->ol_flags =
			RTE_MBUF_F_TX_UDP_CKSUM | (v4 ? RTE_MBUF_F_TX_IPV4 : RTE_MBUF_F_TX_IPV6);
}

/* Makes frames of payloads[0 .. count) in queue->frames. `last` uses the payloads up. */
static uint32_t frames_make(struct queue *queue, const struct device_port *port,
                            const struct frame_route *route, uint32_t count, bool last,
                            struct net_stats *stats)
{
	uint32_t made = 0;

	for (uint32_t i = 0; i < count; i++) {
		struct rte_mbuf *payload = queue->payloads[i];
		/* Other receivers' headers may still be in front of the payload. */
		bool alone = last && rte_mbuf_refcnt_read(payload) == 1;
		struct rte_mbuf *frame = alone ? payload : frame_copy(queue, payload, port->chains);

		if (last && !alone)
			rte_pktmbuf_free(payload);
		if (frame == NULL) {
			stats->tx_errors++;
			continue;
		}
		stats->sent++;
		stats->sent_bytes += rte_pktmbuf_pkt_len(frame);
		headers_write(frame, route, queue->sums[i], port->finishes_udp);
		queue->frames[made++] = frame;
	}
	return made;
}

/* Multicast leaves by every port. */
static void send_to_group(struct queue *queue, struct frame_route *route, uint32_t count, bool last,
                          struct net_stats *stats)
{
	frame_multicast_mac(&route->to_ip, route->to_mac);
	route->hops = HOPS_MULTICAST;
	for (uint32_t i = 0; i < device.port_count; i++) {
		struct device_port *port = &device.ports[i];
		uint32_t made;

		memcpy(route->from_mac, port->mac, FRAME_MAC_BYTES);
		made = frames_make(queue, port, route, count, last && i + 1 == device.port_count,
		                   stats);
		port_emit(queue, i, queue->frames, made);
	}
}

static void send_to(struct net *net, const struct net_path *path, uint32_t count, bool last)
{
	const struct net_addr *to = &path->to;
	struct queue *queue = net->queue;
	struct frame_route route = {.from_ip = device.ip,
	                            .from_port = device.udp_port,
	                            .to_ip = to->ip,
	                            .to_port = to->port,
	                            .hops = HOPS,
	                            .tos = NET_TOS(net->dscp)};
	const struct net_ip *ip = hop_to(&to->ip);
	struct neighbour hop;
	uint32_t made;

	if (net_ip_multicast(&to->ip) && net_ip_is_v4(&to->ip) == net_ip_is_v4(&device.ip)) {
		send_to_group(queue, &route, count, last, &net->stats);
		return;
	}
	if (ip == NULL || !hop_find(queue, ip, &hop)) {
		datagrams_lose(net, path, ip, count);
		if (last)
			rte_pktmbuf_free_bulk(queue->payloads, count);
		return;
	}
	memcpy(route.to_mac, hop.mac, FRAME_MAC_BYTES);
	memcpy(route.from_mac, device.ports[hop.port].mac, FRAME_MAC_BYTES);
	made = frames_make(queue, &device.ports[hop.port], &route, count, last, &net->stats);
	port_emit(queue, hop.port, queue->frames, made);
}

static bool any_kept(const struct queue *queue)
{
	for (uint32_t i = 0; i < device.port_count; i++)
		if (queue->kept_count[i] > 0)
			return true;
	return false;
}

uint32_t queue_send(struct net *net, const struct net_path to[], uint32_t to_count,
                    const struct net_out out[], uint32_t count)
{
	struct queue *queue = net->queue;
	uint32_t served = 0, too_large = 0, made;
	bool full = false;

	made = payloads_make(queue, out, count, &net->stats, &too_large);

	while (served < to_count && !full) {
		send_to(net, &to[served], made, served + 1 == to_count);
		if (too_large > 0)
			trouble_note(&net->troubles, &to[served], EMSGSIZE, too_large);
		net->stats.tx_calls++;
		served++;
		full = any_kept(queue);
	}
	net->stats.tx_waits += full;
	if (served < to_count)
		rte_pktmbuf_free_bulk(queue->payloads, made);
	return served;
}
