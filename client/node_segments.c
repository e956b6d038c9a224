// SPDX-License-Identifier: BSD-3-Clause
/* node_segments.c - see node_impl.h: which rows of a tensor lie in a GPU's share of it */

#include "client/node_impl.h"

uint32_t node_segments_of(struct node_share share, const struct winnow_segment *all, uint32_t count,
                          struct winnow_segment *out)
{
	uint64_t share_end = share.first + share.count;
	uint32_t found = 0;

	for (uint32_t i = 0; i < count; i++) {
		const struct winnow_segment *s = &all[i];
		uint64_t first = s->offset > share.first ? s->offset : share.first;
		uint64_t end = s->offset + s->count < share_end ? s->offset + s->count : share_end;
		uint64_t into_row = s->row > 0 && first < end ? (first - s->offset) % s->row : 0;

		/* The rest of a row that began in the share before goes in blocks of the usual size. */
		if (first >= end || (into_row > 0 && s->row - into_row >= end - first))
			continue;
		first += into_row > 0 ? s->row - into_row : 0;
		out[found++] = (struct winnow_segment){
			.offset = first - share.first, .count = end - first, .row = s->row};
	}
	return found;
}
