// SPDX-License-Identifier: BSD-3-Clause
/*
 * mbufs.c - pools of mbufs without the padding that DPDK would add
 *
 * rte_pktmbuf_pool_create() spreads mbufs over memory channels by making them larger. An AF_XDP
 * socket takes a whole mbuf as its frame, a page at most: with the padding, frames of the MTU
 * that native XDP allows (3,498) would no longer fit.
 */

#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>

#include "aggregator/dpdk/device.h"

#define CACHE 256

struct rte_mempool *mbufs_new(const char *name, uint32_t count, uint32_t room)
{
	struct rte_pktmbuf_pool_private private = {.mbuf_data_room_size =
	                                                   (uint16_t)(room + RTE_PKTMBUF_HEADROOM)};
	uint32_t bytes = (uint32_t)sizeof(struct rte_mbuf) + private.mbuf_data_room_size;
	struct rte_mempool *pool = rte_mempool_create_empty(
		name, count, bytes, CACHE, sizeof(private), SOCKET_ID_ANY, RTE_MEMPOOL_F_NO_SPREAD);
	int err;

	if (pool == NULL)
		return NULL;
	err = rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(), NULL);
	if (err == 0) {
		rte_pktmbuf_pool_init(pool, &private);
		err = rte_mempool_populate_default(pool);
	}
	if (err < 0) {
		rte_mempool_free(pool);
		rte_errno = -err;
		return NULL;
	}
	rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
	return pool;
}
