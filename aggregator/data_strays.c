// SPDX-License-Identifier: BSD-3-Clause
/*
 * data_strays.c - datagrams that came in by another thread's net, and how they get to their own
 *
 * A kernel that joins datagrams of one sender (GRO) steers all of them by the first one. Those of
 * other channels are copied into the box of the thread that owns the channel. What finds the box
 * full is dropped, and repaired like any loss.
 */

#include <string.h>

#include "aggregator/data_state.h"

static bool box_put(struct stray_box *box, const struct net_in *in)
{
	struct net_in *copy = &box->in[box->count];

	if (box->count == NET_BURST_MAX || in->bytes > STRAYS_BYTES - box->bytes)
		return false;
	*copy = *in;
	copy->data = box->memory + box->bytes;
	memcpy(box->memory + box->bytes, in->data, in->bytes);
	box->bytes += in->bytes;
	box->count++;
	return true;
}

bool strays_put(struct data_thread *owner, const struct net_in *in)
{
	struct data_strays *strays = &owner->strays;
	bool first, done;

	pthread_mutex_lock(&strays->lock);
	first = strays->boxes[strays->filling].count == 0;
	done = box_put(&strays->boxes[strays->filling], in);
	atomic_store(&strays->waiting, true);
	pthread_mutex_unlock(&strays->lock);
	if (first)
		data_wake(owner);
	return done;
}

uint32_t strays_take(struct data_strays *strays, const struct net_in **in)
{
	struct stray_box *full = &strays->boxes[strays->filling];

	if (!atomic_load(&strays->waiting))
		return 0;
	pthread_mutex_lock(&strays->lock);
	strays->filling ^= 1;
	strays->boxes[strays->filling].count = strays->boxes[strays->filling].bytes = 0;
	atomic_store(&strays->waiting, false);
	pthread_mutex_unlock(&strays->lock);
	*in = full->in;
	return full->count;
}
