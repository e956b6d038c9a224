// SPDX-License-Identifier: BSD-3-Clause
/* trace_format.c - see trace_format.h */

#include "client/trace/trace_format.h"

#include <string.h>

#include "aggregator/control/message.h"
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
	uint64_t bits;

	if (r->dtype < 1 || r->dtype > DTYPE_COUNT || r->reduction < REDUCE_SUM ||
	    r->reduction > REDUCE_PROD || strcmp(packet_form_name(r->form), "?") == 0)
		return "a record has an unknown type or operation";
	if (r->count == 0 || r->count > COUNT_MAX || r->block == 0 ||
	    r->block > WIRE_BLOCK_ELEMS_MAX || r->fine == 0 || r->fine > TRACE_FINE_MAX ||
	    r->first > COUNT_MAX || r->columns > COUNT_MAX ||
	    (r->tile_rows != 0 &&
	     (r->columns == 0 || r->count % r->columns != 0 || r->block % r->tile_rows != 0)))
		return "a record has impossible sizes";
	bits = trace_bits(r);
	if (bits > TRACE_BITS_MAX)
		return "a record's bitmap is too large";
	if (r->encoding == TRACE_WORDS ? r->body_bytes != (bits + 63) / 64 * 8
	                               : r->encoding != TRACE_RUNS)
		return "a record's bitmap is damaged";
	return NULL;
}

const char *trace_record_take(const uint8_t *from, size_t bytes, struct trace_record *out)
{
	*out = (struct trace_record){0};
	if (bytes >= TRACE_RECORD_BYTES)
		memcpy(out, from, sizeof(*out));
	if (out->mark != RECORD_MARK)
		return "a record does not begin where it should";
	if (out->kind == TRACE_OPERATION)
		return operation_check(out);
	return out->kind == TRACE_END && out->body_bytes == 0 ? NULL
	                                                      : "a record is of an unknown kind";
}

/* ---- bitmaps ---- */

size_t trace_bitmap_room(uint64_t bits)
{
	return (size_t)((bits + 63) / 64 * 8);
}

/* The first bit from `from` on that is `value`; `bits` if there is none. */
static uint64_t bit_next(const uint64_t *bitmap, uint64_t bits, uint64_t from, bool value)
{
	while (from < bits) {
		uint64_t word = bitmap[from / 64] ^ (value ? 0 : UINT64_MAX);

		word &= UINT64_MAX << (from % 64);
		if (word != 0) {
			from = from / 64 * 64 + (uint64_t)__builtin_ctzll(word);
			return from < bits ? from : bits;
		}
		from = (from / 64 + 1) * 64;
	}
	return bits;
}

/* Lengths of runs, of zeros first, seven bits a byte; false when they need more than `room`. */
static bool runs_put(const uint64_t *bitmap, uint64_t bits, uint8_t *to, size_t room, size_t *used)
{
	bool value = false;

	*used = 0;
	for (uint64_t from = 0; from < bits; value = !value) {
		uint64_t next = bit_next(bitmap, bits, from, !value), length = next - from;

		do {
			if (*used == room)
				return false;
			to[(*used)++] = (uint8_t)((length & 127) | (length > 127 ? 128 : 0));
			length >>= 7;
		} while (length > 0);
		from = next;
	}
	return true;
}

uint32_t trace_bitmap_put(const uint64_t *bitmap, uint64_t bits, uint8_t *to, uint32_t *encoding)
{
	uint64_t words = (bits + 63) / 64;
	size_t used;

	*encoding = TRACE_RUNS;
	if (runs_put(bitmap, bits, to, trace_bitmap_room(bits), &used))
		return (uint32_t)used;
	*encoding = TRACE_WORDS;
	memcpy(to, bitmap, words * 8);
	if (bits % 64 != 0) {
		uint64_t last = bitmap[words - 1] & ((UINT64_C(1) << (bits % 64)) - 1);

		memcpy(to + (words - 1) * 8, &last, 8);
	}
	return (uint32_t)(words * 8);
}

static void bits_set(uint64_t *bitmap, uint64_t from, uint64_t end)
{
	while (from < end) {
		uint64_t in_word = 64 - from % 64, length = end - from;

		length = length < in_word ? length : in_word;
		bitmap[from / 64] |= (length < 64 ? (UINT64_C(1) << length) - 1 : UINT64_MAX)
		                     << (from % 64);
		from += length;
	}
}

static bool runs_take(const uint8_t *from, uint32_t bytes, uint64_t bits, uint64_t *bitmap)
{
	const uint8_t *end = from + bytes;
	uint64_t done = 0;

	for (bool value = false; from < end; value = !value) {
		uint64_t length = 0;
		uint32_t shift = 0;

		do {
			if (from == end || shift > 35)
				return false;
			length |= (uint64_t)(*from & 127) << shift;
			shift += 7;
		} while (*from++ & 128);
		if (length > bits - done)
			return false;
		if (value)
			bits_set(bitmap, done, done + length);
		done += length;
	}
	return done == bits;
}

bool trace_bitmap_take(const uint8_t *from, const struct trace_record *record, uint64_t *bitmap)
{
	uint64_t bits = trace_bits(record), words = (bits + 63) / 64;

	memset(bitmap, 0, words * 8);
	if (record->encoding == TRACE_RUNS)
		return runs_take(from, record->body_bytes, bits, bitmap);
	memcpy(bitmap, from, words * 8);
	return bits % 64 == 0 || bitmap[words - 1] >> (bits % 64) == 0;
}
