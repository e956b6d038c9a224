/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * geometry.h - how a tensor is cut into parts, shards, segments, blocks and frames
 *
 * PROTOCOL.md section 4 as arithmetic. Pure; any thread.
 *
 * The shares of a reduce-scatter are copies of one part. Aggregators know no parts: announcements say how
 * many blocks of what size a segment has.
 */
#ifndef EBPF_GEOMETRY_H
#define EBPF_GEOMETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "ebpf/deal.h"
#include "ebpf/packet.h"
#include "ebpf/wire.h"

#define SEGMENT_WORDS (WIRE_SEGMENT_BLOCKS_MAX / 64) /* of the largest bitmap of a segment */

/* How blocks of one size travel: section 4.3. */
struct geometry_frames {
	uint32_t block_bytes;  /* on the wire */
	uint32_t frame_blocks; /* blocks in a frame: as many as fit, at least 1 */
	uint32_t block_parts;  /* frames that a block larger than a datagram takes, else 1 */
	uint32_t part_bytes;   /* of all of these but the last; block_bytes when block_parts is 1 */
};

struct geometry_part {
	/* Given. */
	uint64_t count;   /* elements of one copy */
	uint64_t columns; /* of the matrix; they divide `count`. 0: it is flat */
	uint32_t tile_rows,
		tile_columns; /* of a block; of a flat part 1 and the block's elements */
	uint32_t copies;      /* Such parts follow each other; each is cut for itself. */

	/* Computed. */
	uint64_t rows;           /* of the matrix */
	uint64_t across;         /* blocks beside each other */
	uint64_t block_count;    /* of one copy, as are the next three */
	uint64_t shard_blocks;   /* of one shard: one in each group of shard_count */
	uint32_t segment_count;  /* at least 1, even for no elements */
	uint32_t segment_blocks; /* of one shard in a whole segment; a multiple of 64 */
	uint32_t first_segment;
	uint64_t first, first_block; /* in the tensor */
	struct geometry_frames frames;
};

struct geometry {
	uint32_t elem_bytes;    /* on the wire */
	uint32_t payload_bytes; /* data bytes that fit a datagram beside the header */
	uint64_t block_count;   /* in the tensor */
	uint32_t shard_count;
	uint32_t segment_count;
	uint64_t layout; /* of the parts: see geometry_layout() */
	bool eager;      /* travels inside its announcements, on one channel: one flat part */
	bool scatter;    /* worker r receives copy r of the one part */
	uint32_t part_count;
	const struct geometry_part *parts; /* the caller's; NULL: `one` is all */
	struct geometry_part one;
};

/* What the cut depends on. */
struct geometry_input {
	uint64_t count;
	uint32_t block_elems; /* 1 .. WIRE_BLOCK_ELEMS_MAX */
	uint32_t elem_bytes;  /* 2, 4 or 8 */
	uint32_t shard_count; /* channels of the job, 1 .. WIRE_SHARDS_MAX */
	uint32_t payload;     /* UDP payload of the job, header included */
	bool converted;       /* values travel in another type: never eager */
	uint32_t scatter;     /* workers that each receive a share; they divide `count`. 0: none */
	uint64_t agreed;      /* A number that must be the same for all workers. */
	uint32_t part_count;
	struct geometry_part *parts; /* of the tensor; NULL: it is flat. Not with `scatter` */
};

/*
 * geometry_compute - false when the input is out of range; *out is then unchanged. What is computed of
 * parts is written to input->parts, which *out points to.
 */
bool geometry_compute(const struct geometry_input *input, struct geometry *out);

/*
 * geometry_layout - section 4.6: what announcements on channel `shard` of `channels` say of the layout. It
 * is the same for all workers, or they do not agree.
 */
uint64_t geometry_layout(const struct geometry *geometry, uint32_t shard, uint32_t channels);

/* geometry_hash - 4.6: "64-bit FNV-1a of these numbers, each as 8 bytes, little-endian"; `hash`: so far. */
uint64_t geometry_hash(uint64_t hash, uint64_t number);

#define GEOMETRY_HASH_FIRST UINT64_C(0xcbf29ce484222325)

/* geometry_frames - section 4.3, of blocks of this size in a job with this payload. */
struct geometry_frames geometry_frames(uint32_t block_bytes, uint32_t payload);

/* geometry_segment_max - blocks of the longest segment in a job with this payload: a multiple of 64. */
uint32_t geometry_segment_max(uint32_t payload);

/* geometry_segment_blocks - blocks of this size in a whole segment, unless it is eager: section 4.3. */
uint32_t geometry_segment_blocks(uint32_t block_bytes, uint32_t payload);

/* The greatest common divisor: of block sizes, the grain at which one bitmap serves them all. */
uint64_t geometry_gcd(uint64_t a, uint64_t b);

/* geometry_part - number < part_count */
static inline const struct geometry_part *geometry_part(const struct geometry *geometry,
                                                        uint32_t number)
{
	return geometry->parts != NULL ? &geometry->parts[number] : &geometry->one;
}

/* A segment, with what is the same on all shards. */
struct geometry_segment {
	const struct geometry_part *part;
	struct geometry_frames frames;
	uint32_t block_count; /* Of each shard: segment_blocks, fewer in a copy's last, or 0. */
	uint32_t receiver;    /* This rank needs its sums; WIRE_EVERYONE: all do. */
	uint64_t index;       /* The index of its first block among its shard's in the copy. */
	uint64_t first_block; /* The index of its first block in the tensor. */
	uint64_t first;       /* The index of its first element in the tensor. */
};

/* geometry_segment - number < segment_count. */
struct geometry_segment geometry_segment(const struct geometry *geometry, uint32_t number);

/* Frames for `union_blocks` blocks of a segment; at least 1. */
uint32_t geometry_frame_count(const struct geometry_frames *frames, uint32_t union_blocks);

/* Bytes of part `part` of a block: part_bytes, or what is left in the last. */
uint32_t geometry_part_bytes(const struct geometry_frames *frames, uint32_t part);

/* Blocks are numbered in their copy of a part from here on. */

/* geometry_span - blocks that the segment has on all shards; they follow each other from *first on. */
uint64_t geometry_span(const struct geometry *geometry, const struct geometry_segment *segment,
                       uint64_t *first);

/*
 * Number of block `index` of the segment, of `shard`. It may be the part's block_count or more in the
 * last group: then the shard has no such block.
 */
uint64_t geometry_block(const struct geometry *geometry, const struct geometry_segment *segment,
                        uint32_t shard, uint32_t index);

/*
 * Elements of a block: `rows` stretches of `columns`, of which the first begins at element `first` of the
 * tensor, and each `stride` after the one before it. On the wire they are `width` apart. 4.1: "What a tile at an edge
 * lacks of them is zeros there".
 */
struct geometry_tile {
	uint64_t first, stride;
	uint32_t rows, columns; /* 0: there is no such block */
	uint32_t width;
};

struct geometry_tile geometry_tile(const struct geometry_segment *segment, uint64_t block);

/*
 * So many blocks fit an announcement with their set, and their sums as they are added a payload: a segment of
 * an eager operation. 0: not even one.
 */
uint32_t geometry_eager_blocks(uint32_t block_bytes, uint32_t elem_bytes, uint32_t payload);

/* The channel, of `channel_count`, that carries an eager operation with this tag. */
uint32_t geometry_eager_channel(uint64_t tag, uint32_t channel_count);

#endif /* EBPF_GEOMETRY_H */
