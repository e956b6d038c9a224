// SPDX-License-Identifier: BSD-3-Clause
/* test_bitmap.c - scan, scan_range, pack and unpack of every engine against plain byte loops */

#include <errno.h>

#include "bitmap/bitmap.h"
#include "tests/unit/test_bitmap.h"

#define ROUNDS 4000
#define COUNT_MAX 6000
#define WORDS_MAX (COUNT_MAX / 64 + 1)

static struct arena tensors, bitmaps, packs, unpacks;

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16,
                                    DTYPE_F64, DTYPE_I32, DTYPE_I64};

static uint64_t random_block_elems(uint64_t count)
{
	const uint64_t likely[] = {1,   2,    3,    7,         8,          16,
	                           31,  32,   33,   63,        64,         65,
	                           100, 127,  128,  129,       255,        256,
	                           257, 1000, 1024, count + 1, UINT64_MAX, count > 0 ? count : 1};

	if (random_below(3) == 0)
		return 1 + random_below(5000);
	return likely[random_below(sizeof(likely) / sizeof(likely[0]))];
}

static uint64_t random_count(void)
{
	const uint64_t limits[] = {1, 9, 70, 600, COUNT_MAX};

	return random_below(limits[random_below(5)] + 1);
}

/* Near either end of a block if chance wills, where mistakes live. */
static uint64_t random_index(const struct bitmap_tensor *tensor)
{
	uint64_t index = random_below(tensor->count);

	if (tensor->block_elems < tensor->count && random_below(2) == 0)
		index -= index % tensor->block_elems;
	if (random_below(2) == 0 && index > 0)
		index--;
	return random_below(8) == 0 ? tensor->count - 1 : index;
}

/* A tensor of zeros but for a few elements, or a dense one. */
static struct bitmap_tensor random_tensor(const struct arena *arena, enum dtype dtype)
{
	const uint64_t count = random_count();
	const size_t size = dtype_bytes(dtype);
	unsigned char *data = arena_place(arena, count * size, size);
	struct bitmap_tensor tensor = {
		.data = data,
		.count = count,
		.block_elems = random_block_elems(count),
		.dtype = dtype,
	};
	uint64_t nonzeros = random_below(8) == 0 ? count : random_below(12);

	for (uint64_t i = 0; i < count; i++)
		store_element(data + i * size, dtype, random_zero(dtype));
	for (; count > 0 && nonzeros > 0; nonzeros--)
		store_element(data + random_index(&tensor) * size, dtype, random_element(dtype));
	if (count == 0 && random_below(2) == 0)
		tensor.data = NULL;
	return tensor;
}

static bool plain_nonzero(const unsigned char *element, enum dtype dtype)
{
	const size_t size = dtype_bytes(dtype);

	for (size_t i = 0; i + 1 < size; i++)
		if (element[i] != 0)
			return true;
	return dtype_is_float(dtype) ? element[size - 1] != 0 && element[size - 1] != 0x80
	                             : element[size - 1] != 0;
}

/* Returns the words. */
static uint64_t plain_scan(const struct bitmap_tensor *tensor, uint64_t bits[WORDS_MAX])
{
	const unsigned char *data = tensor->data;
	uint64_t block = 0, in_block = 0;

	memset(bits, 0, WORDS_MAX * sizeof(bits[0]));
	for (uint64_t i = 0; i < tensor->count; i++) {
		if (in_block == tensor->block_elems) {
			block++;
			in_block = 0;
		}
		in_block++;
		if (plain_nonzero(data + i * dtype_bytes(tensor->dtype), tensor->dtype))
			bits[block / 64] |= UINT64_C(1) << (block % 64);
	}
	return tensor->count == 0 ? 0 : block / 64 + 1;
}

static struct bitmap_range plain_range(const struct bitmap_tensor *tensor)
{
	const unsigned char *data = tensor->data;
	struct bitmap_range range = {.exponent = BITMAP_EXPONENT_NONE};

	for (uint64_t i = 0; i < tensor->count; i++) {
		uint64_t element =
			fetch_element(data + i * dtype_bytes(tensor->dtype), tensor->dtype);
		double value = plain_value(element, tensor->dtype);
		int exponent;

		if (!isfinite(value)) {
			range.nonfinite = true;
		} else if (value != 0) {
			frexp(value, &exponent);
			if (exponent > range.exponent)
				range.exponent = exponent;
		}
	}
	return range;
}

/* One engine, one tensor: the bitmap, and the range when `ranged`. */
static void check_scan(const struct bitmap_engine *engine, const struct bitmap_tensor *tensor,
                       const struct arena *arena, bool ranged)
{
	uint64_t want[WORDS_MAX];
	const size_t bytes = plain_scan(tensor, want) * sizeof(want[0]);
	uint64_t *bits = arena_place(arena, bytes, sizeof(*bits));
	struct bitmap_range range = {.exponent = 12345};

	if (ranged)
		engine->scan_range(tensor, bits, &range);
	else
		engine->scan(tensor, bits);
	if (memcmp(bits, want, bytes) != 0)
		fail_msg("%s %s differs: %s count=%llu block=%llu", engine->name,
		         ranged ? "scan_range" : "scan", dtype_name(tensor->dtype),
		         (unsigned long long)tensor->count,
		         (unsigned long long)tensor->block_elems);
	arena_check(arena, bits, bytes, engine->name);
	if (ranged) {
		struct bitmap_range want_range = plain_range(tensor);

		assert_int_equal(range.nonfinite, want_range.nonfinite);
		if (!range.nonfinite)
			assert_int_equal(range.exponent, want_range.exponent);
	}
}

TEST(scan)
{
	const struct bitmap_engine *engine;

	for (unsigned round = 0; round < ROUNDS; round++) {
		enum dtype dtype = dtypes[round % DTYPE_COUNT];
		struct bitmap_tensor tensor;

		arena_protect(&tensors, PROT_READ | PROT_WRITE);
		tensor = random_tensor(&tensors, dtype);
		arena_protect(&tensors, PROT_READ);
		for (size_t e = 0; (engine = usable_engine(e)) != NULL; e++) {
			check_scan(engine, &tensor, &bitmaps, false);
			if (dtype_is_float(dtype))
				check_scan(engine, &tensor, &bitmaps, true);
		}
	}
	arena_protect(&tensors, PROT_READ | PROT_WRITE);
}

/* Every position of one non-zero element in blocks of every length up to 200. */
TEST(scan_each_position)
{
	const struct bitmap_engine *engine;

	for (unsigned length = 1; length <= 200; length++) {
		enum dtype dtype = dtypes[length % DTYPE_COUNT];
		const size_t size = dtype_bytes(dtype);
		unsigned char *data = tensors.start + tensors.bytes - length * size;
		struct bitmap_tensor tensor = {data, length, length, dtype};

		memset(data, 0, length * size);
		for (unsigned i = 0; i < length; i++) {
			store_element(data + i * size, dtype, 1);
			for (size_t e = 0; (engine = usable_engine(e)) != NULL; e++)
				check_scan(engine, &tensor, &bitmaps,
				           dtype_is_float(dtype) && i % 2 == 0);
			store_element(data + i * size, dtype, 0);
		}
	}
}

/* Every value of the 16-bit types, and powers of two of the others, alone in a tensor. */
TEST(range_each_value)
{
	const struct bitmap_engine *engine;

	for (size_t e = 0; (engine = usable_engine(e)) != NULL; e++)
		for (size_t d = 0; d < DTYPE_COUNT; d++) {
			const unsigned bits = dtype_bytes(dtypes[d]) * 8;
			const uint64_t values = bits == 16 ? 65536 : 4096 + bits;

			for (uint64_t i = 0; i < values && dtype_is_float(dtypes[d]); i++) {
				uint64_t element = bits == 16 ? i
				                   : i < 4096 ? i << (bits - 12)
				                              : UINT64_C(1) << (i % bits);
				struct bitmap_tensor tensor = {&element, 1, 1, dtypes[d]};

				check_scan(engine, &tensor, &bitmaps, true);
			}
		}
}

/* Is element i in a block whose bit is set? */
static bool in_set_block(const struct bitmap_tensor *tensor, const uint64_t bits[], uint64_t i)
{
	const uint64_t block = i / tensor->block_elems;

	return bits[block / 64] >> (block % 64) & 1;
}

/* Bits at random, also past the last block: those must not matter. */
static uint64_t *random_bitmap(const struct arena *arena, const struct bitmap_tensor *tensor)
{
	const uint64_t words =
		tensor->count == 0 ? 0 : (tensor->count - 1) / tensor->block_elems / 64 + 1;
	uint64_t *bits = arena_place(arena, words * sizeof(*bits), sizeof(*bits));
	const uint64_t kind = random_below(4);

	for (uint64_t w = 0; w < words; w++) {
		uint64_t random = random_bits();

		bits[w] = kind == 0   ? random
		          : kind == 1 ? random & random_bits() & random_bits()
		          : kind == 2 ? random | random_bits() | random_bits()
		                      : (uint64_t)0 - (random & 1);
	}
	return bits;
}

/* Returns what it packed; *count elements. */
static const void *check_pack(const struct bitmap_engine *engine,
                              const struct bitmap_tensor *tensor, const uint64_t bits[],
                              const struct arena *arena, uint64_t *count)
{
	const size_t size = dtype_bytes(tensor->dtype);
	const unsigned char *data = tensor->data;
	unsigned char *out, *at;

	*count = 0;
	for (uint64_t i = 0; i < tensor->count; i++)
		*count += in_set_block(tensor, bits, i);
	at = out = arena_place(arena, *count * size, size);
	assert_int_equal(engine->pack(tensor, bits, out), *count);
	arena_check(arena, out, *count * size, engine->name);
	for (uint64_t i = 0; i < tensor->count; i++)
		if (in_set_block(tensor, bits, i)) {
			assert_memory_equal(at, data + i * size, size);
			at += size;
		}
	return out;
}

/* `packed` is what pack() made of `tensor`, whose elements are thus the answer. */
static void check_unpack(const struct bitmap_engine *engine, const struct bitmap_tensor *tensor,
                         const uint64_t bits[], const void *packed, uint64_t packed_count,
                         const struct arena *arena)
{
	const size_t size = dtype_bytes(tensor->dtype);
	const unsigned char *data = tensor->data;
	struct bitmap_tensor shape = *tensor;
	unsigned char *out = arena_place(arena, tensor->count * size, size);
	unsigned char other[DTYPE_BYTES_MAX];

	memset(other, POISON, sizeof(other));
	shape.data = NULL;
	assert_int_equal(engine->unpack(&shape, bits, packed, out), packed_count);
	arena_check(arena, out, tensor->count * size, engine->name);
	for (uint64_t i = 0; i < tensor->count; i++, out += size)
		if (memcmp(out, in_set_block(tensor, bits, i) ? data + i * size : other, size) != 0)
			fail_msg("%s unpack differs at %llu of %llu, block %llu", engine->name,
			         (unsigned long long)i, (unsigned long long)tensor->count,
			         (unsigned long long)tensor->block_elems);
}

TEST(pack_unpack)
{
	const struct bitmap_engine *engine;

	for (unsigned round = 0; round < ROUNDS; round++) {
		struct bitmap_tensor tensor;
		const uint64_t *bits;

		arena_protect(&tensors, PROT_READ | PROT_WRITE);
		arena_protect(&bitmaps, PROT_READ | PROT_WRITE);
		tensor = random_tensor(&tensors, dtypes[round % DTYPE_COUNT]);
		bits = random_bitmap(&bitmaps, &tensor);
		arena_protect(&tensors, PROT_READ);
		arena_protect(&bitmaps, PROT_READ);
		for (size_t e = 0; (engine = usable_engine(e)) != NULL; e++) {
			const void *packed;
			uint64_t count;

			packed = check_pack(engine, &tensor, bits, &packs, &count);
			arena_protect(&packs, PROT_READ);
			check_unpack(engine, &tensor, bits, packed, count, &unpacks);
			arena_protect(&packs, PROT_READ | PROT_WRITE);
		}
	}
}

TEST(nothing)
{
	const struct bitmap_engine *engine;

	for (size_t e = 0; (engine = usable_engine(e)) != NULL; e++)
		for (unsigned i = 0; i < DTYPE_COUNT * REDUCE_COUNT; i++) {
			enum dtype dtype = dtypes[i % DTYPE_COUNT];
			enum reduction op = (enum reduction)(1 + i / DTYPE_COUNT);
			struct bitmap_tensor nothing = {.block_elems = 1, .dtype = dtype};
			struct bitmap_range range = {.nonfinite = true};

			engine->scan(&nothing, NULL);
			assert_int_equal(engine->pack(&nothing, NULL, NULL), 0);
			assert_int_equal(engine->unpack(&nothing, NULL, NULL, NULL), 0);
			engine->load(NULL, NULL, 0, dtype);
			engine->reduce(NULL, NULL, 0, dtype, op);
			engine->finish(NULL, NULL, 0, dtype, op, 3);
			engine->fixed_encode(NULL, NULL, 0, DTYPE_I32, 200);
			engine->fixed_decode(NULL, NULL, 0, DTYPE_I8, -200, 3);
			if (!dtype_is_float(dtype))
				continue;
			engine->scan_range(&nothing, NULL, &range);
			assert_true(range.exponent == BITMAP_EXPONENT_NONE && !range.nonfinite);
		}
}

TEST(engines)
{
	const struct bitmap_engine *best = bitmap_engines[0];
	struct why why;

	assert_string_equal(best->name, "scalar");
	assert_true(best->usable());
	assert_null(bitmap_named("mmx"));
	assert_null(bitmap_named(""));
	for (size_t e = 0; bitmap_engines[e] != NULL; e++) {
		const struct bitmap_engine *engine = bitmap_engines[e];

		print_message("%s: %s\n", engine->name, engine->usable() ? "tested" : "absent");
		assert_ptr_equal(bitmap_named(engine->name), engine->usable() ? engine : NULL);
		setenv("WINNOW_ISA", engine->name, 1);
		if (engine->usable())
			assert_ptr_equal(bitmap_best(), best = engine);
		assert_int_equal(bitmap_isa_check(&why), engine->usable() ? 0 : -EINVAL);
	}
	setenv("WINNOW_ISA", "mmx", 1);
	assert_ptr_equal(bitmap_best(), best);
	assert_int_equal(bitmap_isa_check(&why), -EINVAL);
	assert_ptr_equal(strstr(why.text, "WINNOW_ISA is 'mmx', but this CPU can run only: scalar"),
	                 why.text);
	unsetenv("WINNOW_ISA");
	assert_ptr_equal(bitmap_best(), best);
	assert_int_equal(bitmap_isa_check(&why), 0);
}

/* clear() touches exactly its bytes, at any address, long and short. */
TEST(clear)
{
	static const uint64_t sizes[] = {0, 1, 63, 64, 100, 8191, 8192, 8193, 8300, 100001};
	static unsigned char memory[100001 + 256];
	const struct bitmap_engine *engine;

	for (size_t e = 0; (engine = usable_engine(e)) != NULL; e++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			for (uint64_t offset = 1; offset < 130; offset += 3) {
				memset(memory, 0xa5, sizes[i] + 256);
				engine->clear(memory + offset, sizes[i]);
				for (uint64_t at = 0; at < sizes[i] + 256; at++)
					assert_int_equal(memory[at],
					                 at - offset < sizes[i] ? 0 : 0xa5);
			}
}

static int arenas_open(void **state)
{
	tensors = arena_open(COUNT_MAX * DTYPE_BYTES_MAX);
	bitmaps = arena_open(WORDS_MAX * sizeof(uint64_t));
	packs = arena_open(COUNT_MAX * DTYPE_BYTES_MAX);
	unpacks = arena_open(COUNT_MAX * DTYPE_BYTES_MAX);
	return 0;
}

int main(void)
{
	return unit_run(arenas_open, NULL);
}
