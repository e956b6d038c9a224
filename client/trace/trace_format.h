/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trace_format.h - the file in which a worker records which parts of its tensors are non-zero
 *
 * A head, then records, little-endian. A record holds a bitmap of one operation's tensor, or of one
 * part of it (geometry.h), a bit for each `fine` elements, so that any block size that is a multiple of `fine` can be worked out
 * later. The last record says what the job has sent and received. Pure: bytes to structs and
 * back; files are written by trace.c and read by cli/trace_read.c. Whatever a file says is
 * checked here.
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

/* Head and record are as they lie in the file. Magic, version and mark are filled in by the put. */
struct trace_head {
	char magic[8];
	uint32_t version;
	uint32_t rank, world;
	uint32_t aggregators, channels, payload, window;
	uint32_t multicast; /* aggregators whose results came by multicast */
	uint64_t run;       /* one number for all workers of this run of the job */
	uint64_t started_s; /* since 1970 */
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
	uint32_t block;      /* elements of one, as it was reduced */
	uint32_t fine;       /* elements a bit stands for */
	uint32_t body_bytes; /* of the bitmap, behind this */
	union {
		struct {
			uint64_t tag, count;
			uint64_t first;     /* its place in the operation's tensor */
			uint32_t parts;     /* parts of the tensor's layout; 0: it has none */
			uint32_t tile_rows; /* of a matrix in tiles: how high these are */
		};
		struct { /* of the end */
			uint64_t operations, sent_bytes, received_bytes, retransmits;
		};
	};
	uint64_t columns; /* of a matrix in tiles, which are its blocks; 0: it is none */
};

_Static_assert(sizeof(struct trace_head) == TRACE_HEAD_BYTES, "as in the file");
_Static_assert(sizeof(struct trace_record) == TRACE_RECORD_BYTES, "as in the file");

/* Bits that an operation's bitmap has. */
static inline uint64_t trace_bits(const struct trace_record *record)
{
	return record->count / record->fine + (record->count % record->fine != 0);
}

void trace_head_put(const struct trace_head *head, uint8_t to[TRACE_HEAD_BYTES]);
void trace_record_put(const struct trace_record *record, uint8_t to[TRACE_RECORD_BYTES]);

/* NULL, or in a few words what is wrong with it; *out is then undefined. */
const char *trace_head_take(const uint8_t *from, size_t bytes, struct trace_head *out);
const char *trace_record_take(const uint8_t *from, size_t bytes, struct trace_record *out);

/*
 * trace_bitmap_put - the bitmap as a set of places where zeros or ones begin, by coded.h: of rows there are
 * far fewer. `edges`, which may be `bitmap`, and `to` have room for a bitmap. Bits past
 * the last one do not matter.
 */
void trace_bitmap_put(const uint64_t *bitmap, struct trace_record *record, uint64_t *edges,
                      uint8_t *to);

/* trace_bitmap_take - fill bitmap[(bits + 63) / 64]; false: `from` is not such a bitmap. */
bool trace_bitmap_take(const uint8_t *from, const struct trace_record *record, uint64_t *bitmap);

#endif /* CLIENT_TRACE_FORMAT_H */
