// SPDX-License-Identifier: BSD-3-Clause
/* knock.c - see knock.h */

#include "client/worker/knock.h"

#include <string.h>

#include "ebpf/wire.h"

/* ---- while joining ---- */

#define ROUND_US 20000     /* 5.3: "a worker sends KNOCKs on each channel every 20 ms" */
#define PASSES_MAX 3       /* 5.3: "each time waits twice as long between KNOCKs, to 160 ms" */
#define ROUNDS_PER_SIZE 10 /* 5.3: "When ten KNOCKs of one size get no answer on a channel" */
/* 5.3: "it waits up to 100 ms for a PROBE, still knocking on one channel" */
#define PROBE_WAIT_US 100000

/* Datagram sizes to fall back to: common MTUs less 28 (IPv4) or 48 (IPv6) bytes of headers. */
static const uint32_t sizes[] = {8972, 3470, 1472, 1452, 1432, 1372, 1232, WIRE_PAYLOAD_MIN};

uint32_t knock_smaller(uint32_t bytes)
{
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (sizes[i] < bytes)
			return sizes[i];
	return 0;
}

static void size_begin(struct knock *knock, uint32_t size, uint64_t now_us)
{
	knock->size = size;
	knock->rounds = knock->turn = 0;
	knock->answered = knock->asked = knock->hurried = 0;
	knock->due_us = now_us;
	knock->probe_until_us = NEVER;
}

void knock_begin(struct knock *knock, uint32_t channel_count, uint32_t largest, bool wants_probe,
                 uint64_t now_us)
{
	*knock = (struct knock){
		.channel_count = channel_count, .largest = largest, .wants_probe = wants_probe};
	size_begin(knock, largest, now_us);
}

static bool all_answered(const struct knock *knock)
{
	return knock->answered == UINT64_MAX >> (64 - knock->channel_count);
}

static void knock_finish(struct knock *knock)
{
	knock->done = true;
	knock->asked = 0;
	knock->due_us = NEVER;
}

uint64_t knock_deadline(const struct knock *knock)
{
	return knock->asked != 0 ? 0 : knock->due_us;
}

/* 5.3: "sends one at once, but at most one a round". This ends even if the address changes all the time. */
void knock_asked(struct knock *knock, uint32_t channel)
{
	const uint64_t bit = UINT64_C(1) << channel;

	if (!knock->done && !(knock->hurried & bit))
		knock->asked |= bit;
	knock->hurried |= bit;
}

void knock_answer(struct knock *knock, uint32_t channel, uint32_t bytes, uint64_t now_us)
{
	if (bytes == knock->size)
		knock->answered |= UINT64_C(1) << channel;
	if (!all_answered(knock))
		return;
	if (!knock->wants_probe)
		knock_finish(knock);
	else if (knock->probe_until_us == NEVER)
		knock->probe_until_us = now_us + PROBE_WAIT_US;
}

void knock_probed(struct knock *knock)
{
	knock->wants_probe = false;
	if (all_answered(knock))
		knock_finish(knock);
}

/* Tries the next smaller size, and after the smallest the largest again, because perhaps nothing has passed. */
static void next_size(struct knock *knock, uint64_t now_us)
{
	uint32_t size = knock_smaller(knock->size);

	knock->passes += size == 0 && knock->passes < PASSES_MAX;
	size_begin(knock, size > 0 ? size : knock->largest, now_us);
}

bool knock_pull(struct knock *knock, uint64_t now_us, uint32_t *channel, uint32_t *bytes)
{
	if (knock->asked != 0) {
		*bytes = knock->size;
		*channel = (uint32_t)__builtin_ctzll(knock->asked);
		knock->asked &= knock->asked - 1;
		return true;
	}
	if (knock->done || now_us < knock->due_us)
		return false;
	if (knock->turn == 0 && now_us >= knock->probe_until_us) {
		knock_finish(knock); /* Multicast does not arrive. */
		return false;
	}
	if (knock->turn == 0 && knock->rounds == ROUNDS_PER_SIZE && !all_answered(knock))
		next_size(knock, now_us);
	/* When all channels have answered, one KNOCK per round is enough, because its PROBE goes to all workers. */
	*bytes = knock->size;
	while (knock->turn < knock->channel_count) {
		*channel = knock->turn++;
		if (all_answered(knock) ? *channel == 0 : !(knock->answered >> *channel & 1))
			return true;
	}
	knock->turn = 0;
	knock->hurried = 0;
	knock->rounds++;
	knock->due_us = now_us + ((uint64_t)ROUND_US << knock->passes);
	return false;
}

/* ---- later ---- */

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

/* When a check is due unless there is news before. */
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
		path->checking = false; /* There has been news on all channels that wait. */
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
 * smallest". This tells a narrow path from a dead one. Returns 0 if there is no smaller size.
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
