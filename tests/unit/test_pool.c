// SPDX-License-Identifier: BSD-3-Clause
/* test_pool.c - a pool of any size gives what its engine gives alone, scan after scan */

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bitmap/pool.h"
#include "tests/unit/test_bitmap.h"

#define TENSOR_BYTES ((size_t)6 << 20)
#define WORDS_MAX (TENSOR_BYTES / 2 / 64 + 1)
#define THREADS_MAX 8

/* A sanitizer needs more address space than a limit on it can leave. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

static _Alignas(64) unsigned char data[TENSOR_BYTES]; /* zero but for marks */
static uint64_t want_bits[WORDS_MAX + 1], got_bits[WORDS_MAX + 1];

/* Around the size where threads join and above; blocks of any length. */
static struct bitmap_tensor random_tensor(enum dtype dtype)
{
	const uint64_t lengths[] = {1, 32, 63, 256, 1000, 4096, 20000, TENSOR_BYTES};
	const uint64_t limit = TENSOR_BYTES / dtype_bytes(dtype);
	uint64_t count = random_below(4) == 0 ? random_below(2000) : limit - random_below(limit);

	return (struct bitmap_tensor){
		.data = data,
		.count = count,
		.block_elems = lengths[random_below(8)],
		.dtype = dtype,
	};
}

/* A few ordinary elements, rarely an edge case such as a NaN; returns where, to undo it. */
static size_t random_mark(const struct bitmap_tensor *tensor)
{
	const size_t size = dtype_bytes(tensor->dtype);
	const size_t at = random_below(tensor->count) * size;
	uint64_t element = random_below(8) == 0 ? random_element(tensor->dtype)
	                                        : random_below(UINT64_C(1) << (size * 8 - 3)) | 1;

	store_element(data + at, tensor->dtype, element);
	return at;
}

static void check(struct bitmap_pool *pool, const struct bitmap_engine *engine,
                  const struct bitmap_tensor *tensor)
{
	const uint64_t blocks =
		tensor->count / tensor->block_elems + (tensor->count % tensor->block_elems != 0);
	const uint64_t words = (blocks + 63) / 64;
	struct bitmap_range want = {0}, got = {.exponent = 77};

	/* The word behind the last one stays. */
	memset(want_bits, POISON, (words + 1) * sizeof(uint64_t));
	memset(got_bits, POISON, (words + 1) * sizeof(uint64_t));
	engine->scan(tensor, want_bits);
	bitmap_pool_scan(pool, tensor, got_bits, NULL);
	assert_memory_equal(got_bits, want_bits, (words + 1) * sizeof(uint64_t));
	if (!dtype_is_float(tensor->dtype))
		return;
	memset(got_bits, POISON, words * sizeof(uint64_t));
	engine->scan_range(tensor, want_bits, &want);
	bitmap_pool_scan(pool, tensor, got_bits, &got);
	assert_memory_equal(got_bits, want_bits, (words + 1) * sizeof(uint64_t));
	assert_int_equal(got.nonfinite, want.nonfinite);
	if (!want.nonfinite)
		assert_int_equal(got.exponent, want.exponent);
}

TEST(equal)
{
	const struct bitmap_engine *engine = bitmap_best();

	for (uint32_t threads = 1; threads <= THREADS_MAX; threads++) {
		struct bitmap_pool *pool = NULL;

		assert_int_equal(bitmap_pool_open(engine, threads, &pool), 0);
		for (unsigned round = 0; round < 30; round++) {
			enum dtype dtype = (enum dtype)(1 + round % DTYPE_COUNT);
			struct bitmap_tensor tensor = random_tensor(dtype);
			size_t marks[20];
			uint64_t mark_count = tensor.count > 0 ? random_below(20) : 0;

			for (uint64_t i = 0; i < mark_count; i++)
				marks[i] = random_mark(&tensor);
			check(pool, engine, &tensor);
			for (uint64_t i = 0; i < mark_count; i++)
				memset(data + marks[i], 0, dtype_bytes(dtype));
		}
		bitmap_pool_close(pool);
	}
}

/* Short scans, so that threads come late to some of them, and must not take part in the next. */
TEST(many_scans)
{
	const struct bitmap_engine *engine = bitmap_best();
	struct bitmap_pool *pool = NULL;

	assert_int_equal(bitmap_pool_open(engine, 4, &pool), 0);
	for (unsigned round = 0; round < 1500; round++) {
		const uint64_t count = ((1 << 20) + 4 + random_below(1 << 19)) / 4;
		struct bitmap_tensor tensor = {data, count, 256, DTYPE_F32};
		const uint64_t at = random_below(count);
		const uint64_t block = at / 256;
		struct bitmap_range range;
		const float one = 1;

		memcpy(data + at * 4, &one, 4);
		memset(got_bits, POISON, (count / 256 / 64 + 1) * 8);
		bitmap_pool_scan(pool, &tensor, got_bits, round % 2 ? &range : NULL);
		for (uint64_t w = 0; w <= (count - 1) / 256 / 64; w++)
			assert_int_equal(got_bits[w],
			                 w == block / 64 ? UINT64_C(1) << (block % 64) : 0);
		if (round % 2)
			assert_true(range.exponent == 1 && !range.nonfinite);
		memset(data + at * 4, 0, 4);
	}
	bitmap_pool_close(pool);
}

TEST(open)
{
	struct bitmap_pool *const untouched = (void *)&untouched;
	struct bitmap_pool *pool = untouched;

	assert_int_equal(bitmap_pool_open(bitmap_best(), 0, &pool), -EINVAL);
	assert_int_equal(bitmap_pool_open(bitmap_best(), BITMAP_POOL_THREADS_MAX + 1, &pool),
	                 -EINVAL);
	assert_ptr_equal(pool, untouched);
	assert_int_equal(bitmap_pool_open(bitmap_best(), BITMAP_POOL_THREADS_MAX, &pool), 0);
	bitmap_pool_close(pool);
	bitmap_pool_close(NULL);
}

/* Room for some stacks, but not for all: those threads that did start must end again. */
TEST(no_threads)
{
	struct bitmap_pool *const untouched = (void *)&untouched;
	struct bitmap_pool *pool = untouched;
	struct rlimit before, less;
	unsigned long pages = 0;
	FILE *statm = fopen("/proc/self/statm", "r");

	assert_non_null(statm);
	assert_int_equal(fscanf(statm, "%lu", &pages), 1);
	fclose(statm);
	if (SANITIZED)
		skip();
	assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
	less = before;
	less.rlim_cur = pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)20 << 20);
	assert_int_equal(setrlimit(RLIMIT_AS, &less), 0);
	assert_int_equal(bitmap_pool_open(bitmap_best(), 16, &pool), -EAGAIN);
	assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
	assert_ptr_equal(pool, untouched);
}
