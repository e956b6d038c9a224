// SPDX-License-Identifier: BSD-3-Clause
/*
 * world_cross.c - a flow as TCP's beside the jobs: Reno, with selective acknowledgements
 *
 * The window doubles every round trip until the first loss, then grows by one datagram per round trip; it
 * is halved once per round trip with losses. Nobody needs the data, so nothing is sent again.
 */

#include <string.h>

#include "tests/sim/world_impl.h"

#define CROSS_BYTES 1472
#define ANSWER_BYTES 32
#define WINDOW_START 10
#define OVERTAKEN 16 /* answers to later ones: it is lost. With 3, what jitter reorders would be. */
#define RTO_US_MIN 200000

struct cross_packet {
	uint32_t number;
	uint64_t sent_us;
};

static void send(struct sim_cross *c)
{
	struct simnet *net = c->world->net;
	uint8_t bytes[CROSS_BYTES] = {0};
	uint32_t to = c->node + 1;

	if (c->until_us > 0 && simnet_now(net) >= c->until_us)
		return;
	while (!c->world->over && c->under_way < c->window && c->next - c->oldest < CROSS_RING) {
		struct cross_packet packet = {c->next, simnet_now(net)};

		memcpy(bytes, &packet, sizeof(packet));
		c->answered[c->next++ % CROSS_RING] = false;
		c->under_way++;
		simnet_send(net, c->node, &to, 1, bytes, sizeof(bytes));
	}
}

static void shrink(struct sim_cross *c, double least)
{
	if ((int32_t)(c->oldest - c->recover) < 0)
		return;
	c->threshold = c->window / 2 > 2 ? c->window / 2 : 2;
	c->window = least > 0 ? least : c->threshold;
	c->recover = c->next;
}

static void losses_find(struct sim_cross *c)
{
	while (c->oldest != c->next) {
		if (!c->answered[c->oldest % CROSS_RING]) {
			if ((int32_t)(c->highest - c->oldest) < OVERTAKEN)
				return;
			c->under_way--;
			c->lost++;
			shrink(c, 0);
		}
		c->oldest++;
	}
}

static void answer_take(struct sim_cross *c, const struct sim_event *event)
{
	uint64_t now_us = simnet_now(c->world->net), rtt_us;
	struct cross_packet packet;

	memcpy(&packet, event->data, sizeof(packet));
	if ((int32_t)(packet.number - c->oldest) < 0 || c->answered[packet.number % CROSS_RING])
		return;
	c->answered[packet.number % CROSS_RING] = true;
	c->under_way--;
	c->heard_us = now_us;
	rtt_us = now_us - packet.sent_us;
	c->srtt_us = c->srtt_us == 0 ? rtt_us : (7 * c->srtt_us + rtt_us) / 8;
	if ((int32_t)(packet.number - c->highest) > 0)
		c->highest = packet.number;
	losses_find(c);
	c->window += c->window < c->threshold ? 1 : 1 / c->window;
}

/* All that is under way has been lost. */
static void time_out(struct sim_cross *c)
{
	uint64_t now_us = simnet_now(c->world->net);
	uint64_t rto_us = 4 * c->srtt_us > RTO_US_MIN ? 4 * c->srtt_us : RTO_US_MIN;

	if (c->under_way == 0 || now_us - c->heard_us < rto_us)
		return;
	c->lost += c->under_way;
	c->under_way = 0;
	c->oldest = c->recover = c->next;
	shrink(c, 1);
	c->heard_us = now_us;
}

void cross_event(struct sim_cross *cross, const struct sim_event *event)
{
	struct simnet *net = cross->world->net;

	if (event->to != cross->node) {
		simnet_send(net, event->to, &cross->node, 1, event->data, ANSWER_BYTES);
		return;
	}
	if (event->kind == SIM_DATAGRAM) {
		answer_take(cross, event);
	} else {
		time_out(cross);
		simnet_timer(net, cross->node, 0, simnet_now(net) + RTO_US_MIN / 4);
	}
	send(cross);
}

void cross_open(struct world *world, uint32_t index)
{
	const struct cross_spec *spec = &world->spec->crosses[index];
	struct sim_cross *c = &world->crosses[index];

	c->world = world;
	c->node = world->nobody + 1 + 2 * index;
	c->window = WINDOW_START;
	c->threshold = CROSS_RING / 2;
	c->heard_us = spec->start_us;
	c->until_us = spec->until_us;
	*simnet_out(world->net, c->node) = spec->out;
	*simnet_in(world->net, c->node) = spec->in;
	*simnet_out(world->net, c->node + 1) = spec->sink_out;
	*simnet_in(world->net, c->node + 1) = spec->sink_in;
	simnet_timer(world->net, c->node, 0, spec->start_us);
}
