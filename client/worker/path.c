// SPDX-License-Identifier: BSD-3-Clause
/* path.c - see path.h */

#include "client/worker/path.h"

#include <string.h>

#include "client/worker/knock.h"
#include "ebpf/wire.h"

/*
 * In sixty-fourths of our patience. 11.5: "there has been no progress for a quarter of the path time", then a check that
 * takes three quarters, 11.5: "in rounds of a 64th of the path time, until each channel has answered".
 */
#define QUARTER_ROUNDS 16
#define CHECK_ROUNDS 48

void path_init(struct path *path, uint32_t channel_count, uint32_t payload, uint64_t patience_us)
{
	*path = (struct path){
		.channel_count = channel_count,
		.payload = payload,
		.patience_us = patience_us,
		.waits_us = NEVER,
	};
}

static uint64_t round_us(const struct path *path)
{
	return path->patience_us / (QUARTER_ROUNDS + CHECK_ROUNDS);
}

/* When a check is due, if nothing comes meanwhile. */
static uint64_t check_due_us(const struct path *path)
{
	uint64_t from_us = path->waits_us;

	if (from_us == NEVER)
		return NEVER;
	if (from_us < path->fine_us)
		from_us = path->fine_us;
	return from_us + QUARTER_ROUNDS * round_us(path);
}

void path_waits(struct path *path, uint64_t since_us, uint64_t now_us)
{
	path->waits_us = since_us;
	if (since_us > path->began_us)
		path->checking =
			false; /* since then something has arrived on all channels that wait */
	if (path->checking || now_us < check_due_us(path))
		return;
	path->checking = true;
	path->began_us = now_us;
	path->answered = path->round = path->turn = 0;
	path->round_due_us = now_us;
	memset(path->passing, 0, sizeof(path->passing));
}

/*
 * 11.5: "After 16 rounds it adds a smaller KNOCK to each: in turns the next smaller of the sizes of 5.3, and the
 * smallest", which tells a path that is narrow from one that is dead. 0: there is none.
 */
static uint32_t smaller_of_round(const struct path *path)
{
	const uint32_t number = path->round - QUARTER_ROUNDS;
	uint32_t bytes = path->payload;

	if (number % 2 == 1)
		return bytes > WIRE_PAYLOAD_MIN ? WIRE_PAYLOAD_MIN : 0;
	for (uint32_t i = 0; i <= number / 2; i++) {
		bytes = knock_smaller(bytes);
		if (bytes == 0)
			bytes = knock_smaller(path->payload);
	}
	return bytes;
}

bool path_pull(struct path *path, uint64_t now_us, uint32_t *channel, uint32_t *bytes)
{
	uint32_t turns = path->channel_count * (path->round < QUARTER_ROUNDS ? 1 : 2);

	if (!path->checking || now_us < path->round_due_us || path->round == CHECK_ROUNDS)
		return false;
	while (path->turn < turns) {
		uint32_t turn = path->turn++;

		*channel = turn % path->channel_count;
		*bytes = turn < path->channel_count ? path->payload : smaller_of_round(path);
		if (!(path->answered >> *channel & 1) && *bytes > 0)
			return true;
	}
	path->turn = 0;
	path->round++;
	path->round_due_us = now_us + round_us(path);
	return false;
}

uint64_t path_deadline(const struct path *path)
{
	return path->checking ? path->round_due_us : check_due_us(path);
}

void path_answer(struct path *path, uint32_t channel, uint32_t bytes, uint64_t now_us)
{
	if (!path->checking)
		return;
	if (bytes < path->payload) {
		if (bytes > path->passing[channel])
			path->passing[channel] = bytes;
		return;
	}
	path->answered |= UINT64_C(1) << channel;
	if (path->answered != UINT64_MAX >> (64 - path->channel_count))
		return;
	path->checking = false;
	path->fine_us = now_us;
}

/* 11.5: "When 48 rounds have brought no answer on some channel, and no progress, the worker sends path" */
bool path_failed(const struct path *path, uint64_t now_us, struct path_verdict *out)
{
	if (!path->checking || path->round < CHECK_ROUNDS || now_us < path->round_due_us)
		return false;
	out->channel = (uint32_t)__builtin_ctzll(~path->answered);
	out->passing = path->passing[out->channel];
	out->sent = CHECK_ROUNDS;
	return true;
}
