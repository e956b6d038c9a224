/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * geometry.h - how a tensor is cut into shards, segments, blocks and frames
 *
 * PROTOCOL.md section 4 as arithmetic. Both sides compute it from the numbers that
 * an ANNOUNCE carries, so they agree without sending it. Pure; any thread.
 */
#ifndef EBPF_GEOMETRY_H
#define EBPF_GEOMETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "ebpf/packet.h"
#include "ebpf/wire.h"

#define SEGMENT_WORDS (WIRE_SEGMENT_BLOCKS_MAX / 64) /* of a bitmap of a segment */

struct geometry {
	uint32_t block_elems;   /* of a whole block: at most the tensor's count */
	uint32_t elem_bytes;    /* on the wire */
	uint32_t block_bytes;   /* on the wire */
	uint32_t payload_bytes; /* data bytes that fit a datagram beside the header */
	uint64_t block_count;   /* in the tensor */
	uint32_t share_count;   /* workers that each receive a share; 1: all receive everything */
	uint64_t share_elems;   /* of one share: the tensor's, if there is one */
	uint64_t share_blocks;  /* likewise; blocks begin where a share begins */
	uint64_t shard_blocks;  /* of one shard in one share: one in each group of shard_count */
	uint32_t shard_count;
	uint32_t segment_blocks; /* blocks of one shard in one whole segment; a multiple of 64 */
	uint32_t share_segments; /* of one share; at least 1, even for no elements */
	uint32_t segment_count;  /* of all shares */
	uint32_t frame_blocks;   /* blocks in a frame: 1 .. WIRE_FRAME_BLOCKS_MAX */
	uint32_t block_parts;    /* frames that a block larger than a datagram takes, else 1 */
	uint32_t part_bytes;     /* of all parts but the last; block_bytes when block_parts is 1 */
	bool eager;              /* travels inside its announcement, on one channel */
};

/* What the cut depends on. */
struct geometry_input {
	uint64_t count;
	uint32_t block_elems; /* 1 .. WIRE_BLOCK_ELEMS_MAX */
	uint32_t elem_bytes;  /* 2, 4 or 8 */
	uint32_t shard_count; /* channels of the job, 1 .. WIRE_SHARDS_MAX */
	uint32_t payload;     /* UDP payload of the job, header included */
	bool fixed32;
	uint32_t scatter; /* workers that each receive a share; they divide `count`. 0: none */
};

/* geometry_compute - false when the input is out of range; *out is then unchanged. */
bool geometry_compute(const struct geometry_input *input, struct geometry *out);

/* The greatest common divisor: of block sizes, the grain at which one bitmap serves them all. */
uint64_t geometry_gcd(uint64_t a, uint64_t b);

/* Blocks that one shard has in `segment`: segment_blocks, fewer in a share's last, 0 if empty. */
uint32_t geometry_segment_blocks(const struct geometry *geometry, uint32_t segment);

/* Frames for `union_blocks` blocks of a segment; at least 1. */
uint32_t geometry_frame_count(const struct geometry *geometry, uint32_t union_blocks);

/* Bytes of part `part` of a block: part_bytes, or what is left in the last. */
uint32_t geometry_part_bytes(const struct geometry *geometry, uint32_t part);

/*
 * geometry_receiver - the rank of the worker whose share `segment` belongs to: the others need none of
 * its sums; WIRE_EVERYONE: all workers receive it.
 */
uint32_t geometry_receiver(const struct geometry *geometry, uint32_t segment);

/* geometry_span - blocks of the tensor that `segment` has on all shards; they follow each other from *first on. */
uint64_t geometry_span(const struct geometry *geometry, uint32_t segment, uint64_t *first);

/* geometry_elems - elements of `block`, of which the first is number *first; 0: there is no such block. */
uint32_t geometry_elems(const struct geometry *geometry, uint64_t block, uint64_t *first);

/*
 * Block number in the tensor of block `index` of `shard`, counted in whole segments: the first of segment n
 * is n * segment_blocks. May be block_count or more in the last group: then the shard has no such block.
 */
uint64_t geometry_block(const struct geometry *geometry, uint32_t shard, uint64_t index);

/* The shard that owns `block`. With one share its index there is block / shard_count. */
uint32_t geometry_shard(const struct geometry *geometry, uint64_t block);

/* The channel, of `channel_count`, that carries an eager operation with this tag. */
uint32_t geometry_eager_channel(uint64_t tag, uint32_t channel_count);

#endif /* EBPF_GEOMETRY_H */
