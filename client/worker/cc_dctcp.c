// SPDX-License-Identifier: BSD-3-Clause
/*
 * cc_dctcp.c - the answer to marks: DCTCP (RFC 8257, sections 3.3 and 4.2)
 *
 * The RFC's: alpha begins at 1 and moves by g = 1/16 of the difference each window; a window with marks shrinks by
 * alpha / 2 of itself. Ours: a round, of a few round trips, takes the place of a window. Alpha counts datagrams instead of
 * bytes, in the direction with more marks, since RESULTs queue because of this worker's PUSHes.
 */

#include "client/worker/cc.h"

/* CONGESTION.md 2: "a mean that begins at 1 and moves by a sixteenth of the difference each round" */
bool cc_dctcp_round(struct cc *cc, uint32_t marked)
{
	cc->alpha = (15 * cc->alpha + marked + 15) / 16;
	if (marked == 0)
		return false;
	cc->recovering = false;
	cc_shrink(cc, cc->alpha, 2048);
	return true;
}
