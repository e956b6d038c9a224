// SPDX-License-Identifier: BSD-3-Clause
/* knocks.c - see knocks.h */

#include "aggregator/jobs/knocks.h"

bool knock_moves(const struct knocker *knocker, const struct packet *packet, bool started)
{
	return !started || (knocker->number != 0 && packet->mask == knocker->number);
}

void knock_note(struct knocker *knocker, bool whole, uint64_t now_us)
{
	knocker->number = 0;
	knocker->any_us = now_us;
	if (whole)
		knocker->whole_us = now_us;
}

void knock_ages(const struct knocker *knocker, uint64_t now_us, struct jobs_heard *out)
{
	out->any_us = knocker->any_us != 0 ? now_us - knocker->any_us : UINT64_MAX;
	out->whole_us = knocker->whole_us != 0 ? now_us - knocker->whole_us : UINT64_MAX;
}
