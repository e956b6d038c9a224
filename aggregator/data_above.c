// SPDX-License-Identifier: BSD-3-Clause
/* data_above.c - a site's datagrams to and from its parent, between a net and relays */

#include <string.h>

#include "aggregator/data_state.h"
#include "aggregator/site/relay.h"

static struct outlet *outlet_above(const struct data_thread *t, uint16_t channel)
{
	for (uint32_t i = 0; i < t->outlet_count; i++)
		if (t->outlets[i]->relay != NULL && relay_channel(t->outlets[i]->relay) == channel)
			return t->outlets[i];
	return NULL;
}

/* The control thread's links wait for it. */
static void answer_report(const struct data_thread *t, const struct net_in *in)
{
	struct report report = {.kind = REPORT_ABOVE,
	                        .above = {.data = malloc(in->bytes), .bytes = in->bytes}};

	if (report.above.data == NULL)
		return;
	memcpy(report.above.data, in->data, in->bytes);
	if (!t->data->config.report(t->data->config.context, &report))
		free(report.above.data);
}

static void refusal_report(const struct data_thread *t, struct outlet *outlet)
{
	const struct wire_mismatch *refused = relay_refused(outlet->relay);
	struct report report = {.kind = REPORT_REFUSED, .id = outlet->info.id};

	if (refused == NULL || outlet->refused)
		return;
	report.refused = *refused;
	outlet->refused = t->data->config.report(t->data->config.context, &report);
}

bool above_take(struct data_thread *t, const struct net_in *in, uint64_t now_us)
{
	struct packet packet;
	struct outlet *outlet;
	enum wire_drop drop;

	if (!net_addr_same(&in->from, t->data->config.parent))
		return false;
	drop = packet_parse(in->data, in->bytes, true, &packet);
	if (drop == WIRE_DROP_NONE && packet.kind == WIRE_KNOCKED) {
		answer_report(t, in);
		return true;
	}
	outlet = drop == WIRE_DROP_NONE ? outlet_above(t, packet.channel) : NULL;
	if (drop == WIRE_DROP_NONE && outlet == NULL && hand_over(t, packet.channel, in))
		return true;
	if (outlet == NULL) {
		t->stats.drops[drop != WIRE_DROP_NONE ? drop : WIRE_DROP_CHANNEL]++;
		return true;
	}
	packet.came_us = in->came_us;
	packet.marked = in->marked;
	relay_receive(outlet->relay, &packet, in->data, in->bytes, now_us);
	refusal_report(t, outlet);
	outlet_dirty(t, outlet);
	return true;
}

void above_work(struct outlet *outlet, uint64_t now_us)
{
	if (outlet->relay != NULL)
		relay_work(outlet->relay, now_us);
}

void above_drain(struct data_thread *t, struct outlet *outlet, uint64_t now_us)
{
	const uint32_t payload = t->data->config.net.payload_max;
	uint32_t count = 0, bytes = 0;
	struct net_path path;

	if (outlet->relay == NULL)
		return;
	path = (struct net_path){.to = *t->data->config.parent};
	for (;;) {
		struct packet_out *packet = &t->burst.packets[count];

		packet->scratch = t->scratch + (size_t)count * payload;
		if (!relay_pull(outlet->relay, now_us, packet))
			break;
		t->burst.out[count] =
			(struct net_out){packet->pieces, packet->piece_count, packet->bytes};
		bytes += packet->bytes;
		if (++count < NET_BURST_MAX && bytes + payload <= NET_BATCH_BYTES_MAX)
			continue;
		send_to(t, &path, count);
		count = bytes = 0;
	}
	if (count > 0)
		send_to(t, &path, count);
}

uint64_t above_deadline(const struct data_thread *t)
{
	uint64_t due_us = UINT64_MAX;

	for (uint32_t i = 0; i < t->outlet_count && t->relay_count > 0; i++)
		if (t->outlets[i]->relay != NULL)
			sooner(&due_us, relay_deadline(t->outlets[i]->relay));
	return due_us;
}

void above_due(struct data_thread *t, uint64_t now_us)
{
	for (uint32_t i = 0; i < t->outlet_count && t->relay_count > 0; i++)
		if (t->outlets[i]->relay != NULL && relay_deadline(t->outlets[i]->relay) <= now_us)
			outlet_dirty(t, t->outlets[i]);
}
