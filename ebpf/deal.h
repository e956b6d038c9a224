/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * deal.h - deals blocks to shards: the arithmetic of PROTOCOL.md, section 4.2
 *
 * It is apart from geometry.h because the GPU also computes it.
 */
#ifndef EBPF_DEAL_H
#define EBPF_DEAL_H

#include <stdint.h>

#ifdef __CUDACC__
#define DEAL_INLINE static __host__ __device__ inline
#else
#define DEAL_INLINE static inline
#endif

/* Mixes the number of a group, so that rows of any stride spread over the shards. */
DEAL_INLINE uint32_t deal_mix(uint64_t value)
{
	value *= UINT64_C(0x9e3779b97f4a7c15);
	return (uint32_t)(value >> 33);
}

/* 4.2: "Block number g of a shard is the one in group g"; shard < shard_count. */
DEAL_INLINE uint64_t deal_block(uint32_t shard_count, uint32_t shard, uint64_t index)
{
	const uint32_t turn = deal_mix(index) % shard_count;
	const uint32_t place = shard >= turn ? shard - turn : shard + shard_count - turn;

	return index * shard_count + place;
}

/* The shard that owns `block`; its index there is block / shard_count. */
DEAL_INLINE uint32_t deal_shard(uint32_t shard_count, uint64_t block)
{
	const uint64_t index = block / shard_count;
	const uint32_t place = (uint32_t)(block % shard_count);

	return (place + deal_mix(index)) % shard_count;
}

#endif /* EBPF_DEAL_H */
