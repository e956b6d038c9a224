/* SPDX-License-Identifier: BSD-3-Clause */
/* trouble.h - a net's list of peers that it does not reach, for the back ends' troubles() */
#ifndef BITMAP_NET_TROUBLE_H
#define BITMAP_NET_TROUBLE_H

#include <string.h>

#include "bitmap/net/net.h"

struct net_troubles {
	uint32_t count;
	struct net_trouble list[NET_TROUBLES_MAX];
};

/* If there are more peers than room, only the first are noted. */
static inline void trouble_note(struct net_troubles *troubles, const struct net_path *path,
                                int error, uint32_t datagrams)
{
	uint32_t i = 0;

	while (i < troubles->count && (troubles->list[i].mark != path->mark ||
	                               !net_addr_same(&troubles->list[i].peer, &path->to)))
		i++;
	if (i == NET_TROUBLES_MAX)
		return;
	if (i == troubles->count)
		troubles->list[troubles->count++] =
			(struct net_trouble){.peer = path->to, .mark = path->mark};
	troubles->list[i].error = error;
	troubles->list[i].count += datagrams;
}

static inline uint32_t trouble_take(struct net_troubles *troubles,
                                    struct net_trouble out[NET_TROUBLES_MAX])
{
	uint32_t count = troubles->count;

	memcpy(out, troubles->list, count * sizeof(out[0]));
	troubles->count = 0;
	return count;
}

#endif /* BITMAP_NET_TROUBLE_H */
