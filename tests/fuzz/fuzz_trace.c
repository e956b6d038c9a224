// SPDX-License-Identifier: BSD-3-Clause
/*
 * fuzz_trace.c - traces, as bytes: a head, a record, its bitmap; and as a file
 *
 * Byte 0: 0 and a whole file follows; else a record's count follows, and its bitmap.
 */

#include <sys/mman.h>
#include <unistd.h>

#include "bitmap/bitmap.h"
#include "bitmap/coded.h"
#include "bitmap/dtype.h"
#include "client/cli/tune/source.h"
#include "tests/fuzz/fuzz.h"

#define BITS_MAX 4096

/* What can be decoded is encoded to no more bytes, and back to the same. */
static void bitmap(struct script *script)
{
	struct trace_record record = {.kind = TRACE_OPERATION, .dtype = DTYPE_F32, .fine = 1};
	uint64_t bits[BITS_MAX / 64], again[BITS_MAX / 64];
	uint8_t out[BITS_MAX / 8];
	uint8_t *body;

	record.count = 1 + script_below(script, BITS_MAX);
	record.body_bytes = (uint32_t)script->left;
	body = exact_copy(script->at, script->left);
	if (trace_bitmap_take(body, &record, bits)) {
		trace_bitmap_put(bits, &record, again, out);
		assert(record.body_bytes <= bitmap_word_count(trace_bits(&record)) * 8);
		assert(trace_bitmap_take(out, &record, again));
		assert(memcmp(bits, again, bitmap_word_count(trace_bits(&record)) * 8) == 0);
	}
	free(body);
}

static void file(const struct script *script)
{
	int fd = memfd_create("trace", MFD_CLOEXEC);
	char path[64];
	struct why why = {""};
	struct trace_file *trace;

	assert(fd >= 0 && write(fd, script->at, script->left) == (ssize_t)script->left);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (trace_file_open(path, &trace, &why) != 0) {
		assert(strlen(why.text) > 0 && strchr(why.text, '\n') == NULL);
	} else {
		for (uint32_t i = 0; i < trace->count; i++) {
			const struct trace_entry *entry = &trace->entries[i];
			uint64_t count = trace_bits(&entry->record);
			uint64_t *bits;

			assert(count <= BITS_COUNT_MAX);
			if (count > BITS_MAX)
				continue;
			bits = malloc((count + 63) / 64 * 8);
			assert(bits != NULL);
			if (trace_bitmap_take(entry->body, &entry->record, bits) && count % 64 != 0)
				assert(bits[count / 64] >> (count % 64) == 0);
			free(bits);
		}
		trace_file_close(trace);
	}
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct script script = {data, bytes};

	if (script_u8(&script) == 0)
		file(&script);
	else
		bitmap(&script);
	return 0;
}
