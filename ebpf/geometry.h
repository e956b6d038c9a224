/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * geometry.h - cuts a tensor into parts, shards, segments, blocks and frames
 *
 * This is the arithmetic of PROTOCOL.md, section 4. Pure; any thread.
 *
 * The shares of a reduce-scatter are copies of one part. Aggregators do not know parts, because
 * announcements say how many blocks of what size a segment has.
 */
#ifndef EBPF_GEOMETRY_H
#define EBPF_GEOMETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "ebpf/deal.h"
#include "ebpf/packet.h"
#include "ebpf/wire.h"

#define SEGMENT_WORDS (WIRE_SEGMENT_BLOCKS_MAX / 64) /* in the bitmap of the largest segment */

/* Section 4.3: how blocks of one size travel. */
struct geometry_frames {
	uint32_t block_bytes;  /* bytes of a block on the wire */
	uint32_t frame_blocks; /* as many blocks as fit a frame, at least 1 */
	uint32_t block_parts;  /* frames for one block; more than 1 if it exceeds a datagram */
	uint32_t part_bytes;   /* bytes in each of these frames but the last */
};

struct geometry_part {
	/* Given by the caller. */
	uint64_t count;        /* elements of one copy */
	uint64_t columns;      /* of the matrix, a divisor of `count`; 0 for a flat part */
	uint32_t tile_rows;    /* rows of a block; 1 in a flat part */
	uint32_t tile_columns; /* columns of a block; in a flat part its elements */
	uint32_t copies;       /* parts like this that follow each other, each cut alone */

	/* Computed. */
	uint64_t rows;           /* of the matrix */
	uint64_t across;         /* blocks side by side */
	uint64_t block_count;    /* blocks of one copy */
	uint64_t shard_blocks;   /* of one copy in one shard, which has one block of each group */
	uint32_t segment_count;  /* of one copy; at least 1, even without elements */
	uint32_t segment_blocks; /* blocks of one shard in a whole segment; a multiple of 64 */
	uint32_t first_segment;
	uint64_t first, first_block; /* first element and first block, counted in the tensor */
	struct geometry_frames frames;
};

struct geometry {
	uint32_t elem_bytes;    /* on the wire */
	uint32_t payload_bytes; /* bytes of a datagram behind the header */
	uint64_t block_count;   /* in the tensor */
	uint32_t shard_count;
	uint32_t segment_count;
	uint64_t layout; /* hash of the parts: see geometry_layout() */
	bool eager;      /* one flat part that travels inside its announcements, on one channel */
	bool scatter;    /* worker r receives copy r of the one part */
	uint32_t part_count;
	const struct geometry_part *parts; /* owned by the caller; NULL: only `one` */
	struct geometry_part one;
};

/* The values that determine the cut. */
struct geometry_input {
	uint64_t count;
	uint32_t block_elems; /* 1 .. WIRE_BLOCK_ELEMS_MAX */
	uint32_t elem_bytes;  /* 2, 4 or 8 */
	uint32_t shard_count; /* channels of the job, 1 .. WIRE_SHARDS_MAX */
	uint32_t payload;     /* UDP payload of the job's datagrams, header included */
	bool converted;       /* values travel in another type, which is never eager */
	uint32_t scatter;     /* how many workers receive a share each, a divisor of `count` */
	uint64_t agreed;      /* A number that must be the same for all workers. */
	uint32_t part_count;
	struct geometry_part *parts; /* NULL for a flat tensor; not with `scatter` */
};

/*
 * geometry_compute - returns false, and leaves *out unchanged, when the input is out of range. The
 * computed fields of parts are written to input->parts, which *out points to.
 */
bool geometry_compute(const struct geometry_input *input, struct geometry *out);

/*
 * geometry_layout - section 4.6: the layout hash in announcements on channel `shard` of `channels`.
 * Workers agree on the cut if it is the same for all of them.
 */
uint64_t geometry_layout(const struct geometry *geometry, uint32_t shard, uint32_t channels);

/* geometry_hash - one step of 4.6: "64-bit FNV-1a of these numbers, each as 8 bytes, little-endian". */
uint64_t geometry_hash(uint64_t hash, uint64_t number);

#define GEOMETRY_HASH_FIRST UINT64_C(0xcbf29ce484222325)

/* geometry_frames - section 4.3, for blocks of this size in a job with this payload. */
struct geometry_frames geometry_frames(uint32_t block_bytes, uint32_t payload);

/* geometry_segment_max - blocks of the longest segment with this payload: a multiple of 64. */
uint32_t geometry_segment_max(uint32_t payload);

/* geometry_segment_blocks - section 4.3: blocks of a whole segment that is not eager. */
uint32_t geometry_segment_blocks(uint32_t block_bytes, uint32_t payload);

/* The greatest common divisor of block sizes: one bitmap of that grain serves them all. */
uint64_t geometry_gcd(uint64_t a, uint64_t b);

/* geometry_part - number < part_count */
static inline const struct geometry_part *geometry_part(const struct geometry *geometry,
                                                        uint32_t number)
{
	return geometry->parts != NULL ? &geometry->parts[number] : &geometry->one;
}

/* A segment, with everything that is the same on all shards. */
struct geometry_segment {
	const struct geometry_part *part;
	struct geometry_frames frames;
	uint32_t block_count; /* In each shard: segment_blocks; fewer or 0 in the last segment. */
	uint32_t receiver;    /* The rank that needs its sums, or WIRE_EVERYONE. */
	uint64_t index;       /* The index of its first block among its shard's in the copy. */
	uint64_t first_block; /* The index of its first block in the tensor. */
	uint64_t first;       /* The index of its first element in the tensor. */
};

/* geometry_segment - number < segment_count. */
struct geometry_segment geometry_segment(const struct geometry *geometry, uint32_t number);

/* Frames for `union_blocks` blocks of a segment; at least 1. */
uint32_t geometry_frame_count(const struct geometry_frames *frames, uint32_t union_blocks);

/* Bytes of part `part` of a block. The last part takes the rest. */
uint32_t geometry_part_bytes(const struct geometry_frames *frames, uint32_t part);

/* From here on, blocks are numbered in their copy of a part. */

/* geometry_span - the number of the segment's blocks on all shards, which begin at *first. */
uint64_t geometry_span(const struct geometry *geometry, const struct geometry_segment *segment,
                       uint64_t *first);

/*
 * The number of the block that has `index` in the segment of `shard`. In the last group it may
 * reach the part's block_count, which means that the shard has no such block.
 */
uint64_t geometry_block(const struct geometry *geometry, const struct geometry_segment *segment,
                        uint32_t shard, uint32_t index);

/*
 * The elements of a block: `rows` runs of `columns` elements each. The first run begins at element
 * `first` of the tensor, and each other one `stride` after the one before. On the wire runs are
 * `width` apart. 4.1: "What a tile at an edge lacks of them is zeros there".
 */
struct geometry_tile {
	uint64_t first, stride;
	uint32_t rows, columns; /* 0 if there is no such block */
	uint32_t width;
};

struct geometry_tile geometry_tile(const struct geometry_segment *segment, uint64_t block);

/*
 * The blocks of a segment of an eager operation: as many as fit an announcement with their set, and
 * whose sums fit a payload. 0 if not even one does.
 */
uint32_t geometry_eager_blocks(uint32_t block_bytes, uint32_t elem_bytes, uint32_t payload);

/* The channel, below `channel_count`, that carries an eager operation with this tag. */
uint32_t geometry_eager_channel(uint64_t tag, uint32_t channel_count);

#endif /* EBPF_GEOMETRY_H */
