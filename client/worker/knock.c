// SPDX-License-Identifier: BSD-3-Clause
/* knock.c - see knock.h */

#include "client/worker/knock.h"

#include "ebpf/wire.h"

#define ROUND_US 20000     /* 5.3: "a worker sends KNOCKs on each channel every 20 ms" */
#define PASSES_MAX 3       /* 5.3: "each time waits twice as long between KNOCKs, to 160 ms" */
#define ROUNDS_PER_SIZE 10 /* 5.3: "When ten KNOCKs of one size get no answer on a channel" */
/* 5.3: "it waits up to 100 ms for a PROBE, still knocking on one channel" */
#define PROBE_WAIT_US 100000

/* Datagram sizes to fall back to, when a larger one does not pass: common MTUs less 28, or 48. */
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

/* 5.3: "sends one at once, but at most one a round": an address that changes all the time ends. */
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

/*
 * This size, or nothing at all, fails to pass: try the next smaller, and after all of them the
 * largest again.
 */
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
		knock_finish(knock); /* without multicast */
		return false;
	}
	if (knock->turn == 0 && knock->rounds == ROUNDS_PER_SIZE && !all_answered(knock))
		next_size(knock, now_us);
	/*
	 * When all have answered, one KNOCK a round is enough for the PROBE that it draws. More
	 * would be too many: each PROBE goes to all workers.
	 */
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
