// SPDX-License-Identifier: BSD-3-Clause
/* world_kernel.c - a kernel with the fast path in front of a simulated aggregator */

#include <stdlib.h>
#include <string.h>

#include "ebpf/seal.h"
#include "tests/sim/kernel_model.h"
#include "tests/sim/world_impl.h"

static void *zeroed(size_t count, size_t bytes)
{
	void *memory = calloc(count, bytes);

	if (memory == NULL)
		abort();
	return memory;
}

const char *kernel_share(void *context, const struct jobs_channel *channel,
                         struct channel_config *config)
{
	struct sim_aggregator *a = context;
	struct fast_channel *fast;

	if (!a->spec->fast)
		return "";
	if (channel->worker_count > FAST_WORKERS_MAX)
		return "too many workers";
	fast = zeroed(1, sizeof(*fast));
	fast->id = channel->id;
	fast->worker_count = channel->worker_count;
	fast->group_token = channel->group_token;
	fast->knocked = UINT64_MAX >> (FAST_WORKERS_MAX - channel->worker_count);
	memcpy(fast->tokens, config->tokens, channel->worker_count * sizeof(fast->tokens[0]));
	fast->sealed = channel->seals != NULL;
	if (fast->sealed) {
		fast->stretch = channel->seals->stretch;
		fast->keys[FAST_KEY_GROUP] = channel->seals->group;
		memcpy(fast->keys, channel->seals->workers,
		       channel->worker_count * sizeof(fast->keys[0]));
	}
	config->fast = a->fast = fast;
	config->fast_slots = a->fast_slots = zeroed(config->window, sizeof(*a->fast_slots));
	return NULL;
}

void kernel_attach(struct sim_aggregator *a, struct sim_port *port)
{
	port->fast = a->fast;
	port->fast_slots = a->fast_slots;
	a->fast = NULL;
	a->fast_slots = NULL;
}

void kernel_release(struct sim_port *port)
{
	free(port->fast);
	free(port->fast_slots);
	port->fast = NULL;
	port->fast_slots = NULL;
}

void kernel_unshare(void *context, uint16_t id)
{
	kernel_release(port_named(context, id));
}

/* It does not wait for a device that is full. */
static bool has_room(struct sim_aggregator *a)
{
	if (simnet_ready_us(a->world->net, a->node) <= simnet_now(a->world->net))
		return true;
	a->world->out->overflowed++;
	return false;
}

bool kernel_takes(struct sim_aggregator *a, struct sim_port *port, const struct sim_event *event,
                  bool at_home)
{
	struct world *world = a->world;
	struct kernel_model model = {port->fast, port->fast_slots, a->spec->no_room, at_home,
	                             event->marked};
	uint8_t packet[FAST_PAYLOAD_MAX];
	uint32_t bytes = event->bytes;

	if (port->fast == NULL || bytes > sizeof(packet) ||
	    simnet_chance(world->net, a->spec->bypass_ppm))
		return false;
	memcpy(packet, event->data, bytes);
	switch (kernel_model(&model, packet, &bytes)) {
	case KERNEL_PASS: /* and may be lost on its way up: a full socket, a firewall */
		return simnet_chance(world->net, a->spec->in.loss_ppm);
	case KERNEL_DROP:
		return true;
	case KERNEL_GROUP:
		if (has_room(a))
			simnet_send(world->net, a->node, port->node, port->info.worker_count,
			            packet, bytes);
		return true;
	}
	return false;
}
