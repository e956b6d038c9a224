// SPDX-License-Identifier: BSD-3-Clause
/* simnet.c - see simnet.h; a binary heap of events */

#include "tests/sim/simnet.h"

#include <stdlib.h>
#include <string.h>

struct simnet {
	struct simnet_config config;
	uint64_t now_us, order, random;
	struct sim_event *heap;
	uint32_t count, room;
	uint64_t *port_free_us; /* [nodes] when the port has sent all that queues for it */
	uint64_t *line_last_us; /* [nodes * nodes] when the last line gets there */
	struct simnet_stats stats;
};

static void *must(void *memory)
{
	if (memory == NULL)
		abort();
	return memory;
}

struct simnet *simnet_open(const struct simnet_config *config)
{
	struct simnet *net = must(calloc(1, sizeof(*net)));

	net->config = *config;
	net->random = config->seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	net->port_free_us = must(calloc(config->nodes, sizeof(*net->port_free_us)));
	net->line_last_us =
		must(calloc((size_t)config->nodes * config->nodes, sizeof(*net->line_last_us)));
	return net;
}

void simnet_close(struct simnet *net)
{
	for (uint32_t i = 0; i < net->count; i++)
		free(net->heap[i].data);
	free(net->heap);
	free(net->port_free_us);
	free(net->line_last_us);
	free(net);
}

uint64_t simnet_now(const struct simnet *net)
{
	return net->now_us;
}

/* splitmix64 */
uint64_t simnet_random(struct simnet *net)
{
	uint64_t z = net->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

uint64_t simnet_between(struct simnet *net, uint64_t low, uint64_t high)
{
	return low + simnet_random(net) % (high - low + 1);
}

bool simnet_chance(struct simnet *net, uint32_t ppm)
{
	return simnet_random(net) % 1000000 < ppm;
}

static bool earlier(const struct sim_event *a, const struct sim_event *b)
{
	return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

static void put(struct simnet *net, const struct sim_event *event)
{
	uint32_t at = net->count++;

	if (net->count > net->room) {
		net->room = net->room > 0 ? net->room * 2 : 1024;
		net->heap = must(realloc(net->heap, net->room * sizeof(*net->heap)));
	}
	while (at > 0 && earlier(event, &net->heap[(at - 1) / 2])) {
		net->heap[at] = net->heap[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	net->heap[at] = *event;
}

bool simnet_next(struct simnet *net, struct sim_event *out)
{
	struct sim_event last;
	uint32_t at = 0;

	if (net->count == 0)
		return false;
	*out = net->heap[0];
	last = net->heap[--net->count];
	for (;;) {
		uint32_t child = 2 * at + 1;

		if (child >= net->count)
			break;
		if (child + 1 < net->count && earlier(&net->heap[child + 1], &net->heap[child]))
			child++;
		if (!earlier(&net->heap[child], &last))
			break;
		net->heap[at] = net->heap[child];
		at = child;
	}
	net->heap[at] = last;
	net->now_us = out->at_us;
	return true;
}

static uint8_t *copy(const void *data, uint32_t bytes)
{
	return memcpy(must(malloc(bytes > 0 ? bytes : 1)), data, bytes);
}

/* The port at `to` takes its time; what finds its queue full is lost. */
static bool through_port(struct simnet *net, uint32_t to, uint32_t bytes, uint64_t *at_us)
{
	uint64_t rate = net->config.rate_bytes_s, free_us = net->port_free_us[to];

	if (rate == 0)
		return true;
	if (free_us < *at_us)
		free_us = *at_us;
	if ((free_us - *at_us) * rate / 1000000 > net->config.queue_bytes) {
		net->stats.overflowed++;
		return false;
	}
	free_us += (uint64_t)bytes * 1000000 / rate;
	net->port_free_us[to] = free_us;
	*at_us = free_us;
	return true;
}

static void send_once(struct simnet *net, uint32_t from, uint32_t to, const void *data,
                      uint32_t bytes)
{
	struct sim_event event = {.kind = SIM_DATAGRAM, .from = from, .to = to, .bytes = bytes};

	event.at_us = net->now_us +
	              simnet_between(net, net->config.delay_us_min, net->config.delay_us_max);
	if (simnet_chance(net, net->config.reorder_ppm))
		event.at_us += simnet_between(net, 0, net->config.reorder_us);
	if (!through_port(net, to, bytes, &event.at_us))
		return;
	event.order = net->order++;
	event.data = copy(data, bytes);
	put(net, &event);
}

void simnet_send(struct simnet *net, uint32_t from, uint32_t to, const void *data, uint32_t bytes)
{
	net->stats.datagrams++;
	if ((net->config.mtu != 0 && bytes > net->config.mtu) ||
	    simnet_chance(net, net->config.loss_ppm)) {
		net->stats.lost++;
		return;
	}
	send_once(net, from, to, data, bytes);
	if (simnet_chance(net, net->config.duplicate_ppm)) {
		net->stats.doubled++;
		send_once(net, from, to, data, bytes);
	}
}

static void put_control(struct simnet *net, struct sim_event *event)
{
	uint64_t *last = &net->line_last_us[(size_t)event->from * net->config.nodes + event->to];

	event->at_us = net->now_us +
	               simnet_between(net, net->config.delay_us_min, net->config.delay_us_max);
	if (event->at_us < *last)
		event->at_us = *last;
	*last = event->at_us;
	event->order = net->order++;
	put(net, event);
}

void simnet_line(struct simnet *net, uint32_t from, uint32_t to, uint32_t channel, const char *line)
{
	struct sim_event event = {.kind = SIM_LINE, .from = from, .to = to, .channel = channel};

	event.bytes = (uint32_t)strlen(line) + 1;
	event.data = copy(line, event.bytes);
	put_control(net, &event);
}

void simnet_gone(struct simnet *net, uint32_t from, uint32_t to, uint32_t channel)
{
	struct sim_event event = {.kind = SIM_GONE, .from = from, .to = to, .channel = channel};

	put_control(net, &event);
}

void simnet_timer(struct simnet *net, uint32_t node, uint32_t channel, uint64_t at_us)
{
	struct sim_event event = {
		.kind = SIM_TIMER, .to = node, .from = node, .channel = channel, .at_us = at_us};

	if (event.at_us < net->now_us)
		event.at_us = net->now_us;
	event.order = net->order++;
	put(net, &event);
}

void simnet_postpone(struct simnet *net, const struct sim_event *event, uint64_t at_us)
{
	struct sim_event later = *event;

	later.at_us = at_us;
	later.data = event->data != NULL ? copy(event->data, event->bytes) : NULL;
	later.order = net->order++;
	put(net, &later);
}

void simnet_free(struct sim_event *event)
{
	free(event->data);
	event->data = NULL;
}

const struct simnet_stats *simnet_stats(const struct simnet *net)
{
	return &net->stats;
}
