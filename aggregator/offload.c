// SPDX-License-Identifier: BSD-3-Clause
/* offload.c - see offload.h; fastpath.h defines the shared memory */

#include "aggregator/offload.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ebpf/seal.h"

#define GROUP_TTL 1 /* like the sockets' own: one network */

struct offload {
	struct xdp *xdp;
	struct why works, gone; /* what offload_describe() returns before and after the loss */
	atomic_bool lost;       /* The control thread writes it, HTTP's thread reads it. */
	uint8_t tos;            /* of the program's packets */
};

int offload_open(const struct xdp_config *config, uint32_t dscp, struct offload **out,
                 struct why *why)
{
	struct offload *offload = malloc(sizeof(*offload));
	const struct xdp_view *view;
	int err;

	if (offload == NULL)
		return why_set(why, -ENOMEM, "out of memory");
	err = xdp_open(config, &offload->xdp, why);
	if (err != 0) {
		free(offload);
		return err;
	}
	view = xdp_look(offload->xdp);
	offload->lost = false;
	offload->tos = NET_TOS(dscp);
	why_set(&offload->gone, 0, "no: %s is gone", config->device != NULL ? config->device : "");
	why_set(&offload->works, 0, "%s%s%s", view->mode == XDP_MODE_NATIVE ? "native" : "generic",
	        view->note.text[0] != '\0' ? ": " : "", view->note.text);
	*out = offload;
	return 0;
}

void offload_close(struct offload *offload)
{
	if (offload == NULL)
		return;
	xdp_close(offload->xdp);
	free(offload);
}

const char *offload_describe(const struct offload *offload)
{
	if (offload == NULL)
		return "no";
	return offload->lost ? offload->gone.text : offload->works.text;
}

bool offload_lost(struct offload *offload)
{
	if (offload == NULL || offload->lost || xdp_attached(offload->xdp))
		return false;
	offload->lost = true;
	return true;
}

bool offload_works(const struct offload *offload)
{
	return offload != NULL && !offload->lost;
}

static void fast_fill(const struct offload *offload, struct fast_channel *fast,
                      const struct jobs_channel *channel, const struct channel_config *config)
{
	fast->worker_count = channel->worker_count;
	fast->group_token = channel->group_token;
	fast->group_ip = htonl(net_ip_number(&channel->group));
	if (fast->group_ip == 0)
		memcpy(fast->group_six, channel->group.bytes, sizeof(fast->group_six));
	fast->group_port = htons(channel->group_port);
	fast->ttl = GROUP_TTL;
	fast->tos = offload->tos;
	memcpy(fast->tokens, config->tokens, channel->worker_count * sizeof(fast->tokens[0]));
	fast->sealed = channel->seals != NULL;
	if (!fast->sealed)
		return;
	fast->stretch = channel->seals->stretch;
	fast->keys[FAST_KEY_GROUP] = channel->seals->group;
	memcpy(fast->keys, channel->seals->workers, channel->worker_count * sizeof(fast->keys[0]));
}

const char *offload_share(void *context, const struct jobs_channel *channel,
                          struct channel_config *config)
{
	struct offload *offload = context;
	const char *why = "other jobs have the slots: see --xdp-slots";
	int index = -ENOSPC;

	if (offload == NULL)
		return "";
	offload_release(offload, channel->id); /* left by a job that was never opened */
	if (offload->lost)
		return "the device is gone: restart winnowd when it is back";
	if (channel->worker_count > FAST_WORKERS_MAX)
		why = "more than 64 workers";
	else
		index = xdp_channel_open(offload->xdp, channel->id, config->window);
	if (index < 0) {
		xdp_known(offload->xdp, channel->id, true);
		return why;
	}
	config->fast = &xdp_look(offload->xdp)->channels[index];
	config->fast_slots = &xdp_look(offload->xdp)->slots[config->fast->first_slot];
	fast_fill(offload, config->fast, channel, config);
	return NULL;
}

void offload_unshare(void *context, uint16_t id)
{
	struct offload *offload = context;

	if (offload != NULL)
		xdp_known(offload->xdp, id, true);
}

void offload_release(struct offload *offload, uint16_t id)
{
	if (offload != NULL)
		xdp_known(offload->xdp, id, false);
}

void offload_counters(const struct offload *offload, uint64_t out[FAST_COUNTER_COUNT])
{
	memset(out, 0, FAST_COUNTER_COUNT * sizeof(out[0]));
	if (offload != NULL)
		xdp_counters(offload->xdp, out);
}
