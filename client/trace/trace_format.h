/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trace_format.h - the file in which a worker records which parts of its tensors are non-zero
 *
 * A file is a head, then records, little-endian. A record holds a bitmap of one operation's tensor, or
 * of a part of it (geometry.h), with a bit for each `fine` elements, so that winnow tune can predict
 * each block size that is a multiple of `fine`. The last record has the job's sent and received bytes.
 * Pure: it converts bytes to structs and back, and checks them. trace.c writes files, trace_read.c
 * reads them.
 */
#ifndef CLIENT_TRACE_FORMAT_H
#define CLIENT_TRACE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_VERSION 3
#define TRACE_HEAD_BYTES 128
#define TRACE_RECORD_BYTES 64
#define TRACE_JOB_BYTES 65
#define TRACE_FINE_MAX 65536

/* Head and record have the layout of the file. The put functions fill in magic, version and mark. */
struct trace_head {
	char magic[8];
	uint32_t version;
	uint32_t rank, world;
	uint32_t aggregators, channels, payload, window;
	uint32_t multicast; /* The aggregators whose results came by multicast. */
	uint64_t run;       /* A number that all workers of this run of the job share. */
	uint64_t started_s; /* Seconds since 1970. */
	char job[TRACE_JOB_BYTES];
	char zeros[7];
};

enum trace_kind { TRACE_OPERATION = 1, TRACE_END = 2 };

struct trace_record {
	uint32_t mark;
	uint8_t kind;
	/* Of an operation. */
	uint8_t dtype, reduction, form;
	uint32_t zero;
	uint32_t block;      /* Elements of a block, as the operation used it. */
	uint32_t fine;       /* The elements that a bit stands for. */
	uint32_t body_bytes; /* Bytes of the bitmap, which follows this record. */
	union {
		struct {
			uint64_t tag, count;
			uint64_t first;     /* The part's first element in the tensor. */
			uint32_t parts;     /* Parts of the tensor's layout; 0 without one. */
			uint32_t tile_rows; /* Rows of a tile, of a matrix in tiles. */
		};
		struct { /* Of the end. */
			uint64_t operations, sent_bytes, received_bytes, retransmits;
		};
	};
	uint64_t columns; /* Columns of a matrix whose blocks are tiles; otherwise 0. */
};

_Static_assert(sizeof(struct trace_head) == TRACE_HEAD_BYTES, "as in the file");
_Static_assert(sizeof(struct trace_record) == TRACE_RECORD_BYTES, "as in the file");

/* The bits of an operation's bitmap. */
static inline uint64_t trace_bits(const struct trace_record *record)
{
	return record->count / record->fine + (record->count % record->fine != 0);
}

void trace_head_put(const struct trace_head *head, uint8_t to[TRACE_HEAD_BYTES]);
void trace_record_put(const struct trace_record *record, uint8_t to[TRACE_RECORD_BYTES]);

/* Return NULL, or the text of an error; *out is then undefined. */
const char *trace_head_take(const uint8_t *from, size_t bytes, struct trace_head *out);
const char *trace_record_take(const uint8_t *from, size_t bytes, struct trace_record *out);

/*
 * Writes the bitmap as the set of its changes between 0 and 1, coded by coded.h. A tensor with rows has few of these.
 * `edges`, which may be `bitmap`, and `to` have room for a bitmap. Bits past the last one do not matter.
 */
void trace_bitmap_put(const uint64_t *bitmap, struct trace_record *record, uint64_t *edges,
                      uint8_t *to);

/* Fills bitmap[(bits + 63) / 64]. Returns false if `from` is not such a bitmap. */
bool trace_bitmap_take(const uint8_t *from, const struct trace_record *record, uint64_t *bitmap);

#endif /* CLIENT_TRACE_FORMAT_H */
