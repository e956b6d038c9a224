// SPDX-License-Identifier: BSD-3-Clause
/* trace_format.c - see trace_format.h */

#include "client/trace/trace_format.h"

#include <string.h>

#include "bitmap/control/message.h"
#include "bitmap/coded.h"
#include "bitmap/dtype.h"
#include "ebpf/packet.h"
#include "ebpf/wire.h"

#define RECORD_MARK UINT32_C(0x43455257) /* "WREC" */
#define COUNT_MAX (UINT64_C(1) << 48)

static const char magic[8] = {'W', 'N', 'T', 'R', 'A', 'C', 'E', '\n'};

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "traces are little-endian: this machine would have to swap bytes"
#endif

void trace_head_put(const struct trace_head *head, uint8_t to[TRACE_HEAD_BYTES])
{
	struct trace_head whole = *head;

	memcpy(whole.magic, magic, sizeof(magic));
	whole.version = TRACE_VERSION;
	memcpy(to, &whole, sizeof(whole));
}

const char *trace_head_take(const uint8_t *from, size_t bytes, struct trace_head *out)
{
	if (bytes < TRACE_HEAD_BYTES || memcmp(from, magic, sizeof(magic)) != 0)
		return "it is not a trace of Winnow";
	memcpy(out, from, sizeof(*out));
	if (out->version != TRACE_VERSION)
		return "it is a trace of another version of Winnow";
	out->job[TRACE_JOB_BYTES - 1] = '\0';
	if (!message_name_valid(out->job) || strchr(out->job, '/') != NULL || out->world == 0 ||
	    out->world > WIRE_WORKERS_MAX || out->rank >= out->world || out->channels == 0 ||
	    out->channels > WIRE_SHARDS_MAX || out->aggregators == 0 ||
	    out->aggregators > out->channels || out->payload < WIRE_PAYLOAD_MIN ||
	    out->payload > WIRE_PAYLOAD_MAX || out->window == 0 || out->window > WIRE_WINDOW_MAX ||
	    out->multicast > out->aggregators)
		return "its head is damaged";
	return NULL;
}

void trace_record_put(const struct trace_record *record, uint8_t to[TRACE_RECORD_BYTES])
{
	struct trace_record whole = *record;

	whole.mark = RECORD_MARK;
	memcpy(to, &whole, sizeof(whole));
}

static const char *operation_check(const struct trace_record *r)
{
	if (r->dtype < 1 || r->dtype > DTYPE_COUNT || r->reduction < REDUCE_SUM ||
	    r->reduction > REDUCE_PROD || strcmp(packet_form_name(r->form), "?") == 0)
		return "a record has an unknown type or operation";
	if (r->count == 0 || r->count > COUNT_MAX || r->block == 0 ||
	    r->block > WIRE_BLOCK_ELEMS_MAX || r->fine == 0 || r->fine > TRACE_FINE_MAX ||
	    r->first > COUNT_MAX || r->columns > COUNT_MAX ||
	    (r->tile_rows != 0 &&
	     (r->columns == 0 || r->count % r->columns != 0 || r->block % r->tile_rows != 0)))
		return "a record has impossible sizes";
	return trace_bits(r) > BITS_COUNT_MAX ? "a record's bitmap is too large" : NULL;
}

const char *trace_record_take(const uint8_t *from, size_t bytes, struct trace_record *out)
{
	*out = (struct trace_record){0};
	if (bytes >= TRACE_RECORD_BYTES)
		memcpy(out, from, sizeof(*out));
	if (out->mark != RECORD_MARK)
		return "a record does not begin with its mark";
	if (out->kind == TRACE_OPERATION)
		return operation_check(out);
	return out->kind == TRACE_END && out->body_bytes == 0 ? NULL
	                                                      : "a record is of an unknown kind";
}

/* ---- bitmaps ---- */

/* Clears the bits past the last one. */
static void tail_clear(uint64_t *bitmap, uint64_t bits)
{
	if (bits % 64 != 0)
		bitmap[bits / 64] &= (UINT64_C(1) << (bits % 64)) - 1;
}

void trace_bitmap_put(const uint64_t *bitmap, struct trace_record *record, uint64_t *edges,
                      uint8_t *to)
{
	uint64_t bits = trace_bits(record), before = 0;

	for (uint64_t i = 0; i < (bits + 63) / 64; i++) {
		uint64_t word = bitmap[i];

		edges[i] = word ^ (word << 1 | before);
		before = word >> 63;
	}
	tail_clear(edges, bits);
	record->body_bytes = (uint32_t)bits_write(edges, bits, to);
}

bool trace_bitmap_take(const uint8_t *from, const struct trace_record *record, uint64_t *bitmap)
{
	uint64_t bits = trace_bits(record), words = (bits + 63) / 64, before = 0;

	if (bits_read(from, record->body_bytes, bitmap, bits) != 0)
		return false;
	for (uint64_t i = 0; i < words; i++) {
		for (uint32_t by = 1; by < 64; by *= 2)
			bitmap[i] ^= bitmap[i] << by;
		bitmap[i] ^= before;
		before = 0 - (bitmap[i] >> 63);
	}
	tail_clear(bitmap, bits);
	return true;
}
