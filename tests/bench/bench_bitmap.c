// SPDX-License-Identifier: BSD-3-Clause
/*
 * bench_bitmap.c - how fast each engine is, and how much of what the memory gives
 *
 * GB/s counts every byte that a function must read or write once. The share in the
 * next column is of a loop that only reads, for scan and scan_range, else of
 * memcpy(), both over as many bytes. "memory" is a working set far larger than
 * the caches, "L2" one that fits there. A density is that of non-zero blocks.
 *
 * The second table is of blocks of one element or a few, in multiples of the time in which the
 * read loop reads the tensor, which is far larger than the caches: each function over the whole
 * tensor, their sum, and all four segment by segment, as a worker calls them. unpack writes
 * another tensor, zeros too; but "in place" the same one, whose other blocks are zero already.
 *
 *   bench_bitmap [engine [fine]]     fine: the second table alone
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bitmap/bitmap.h"
#include "bitmap/coded.h"

#define MEMORY_BYTES (UINT64_C(256) << 20)
#define L2_BYTES (UINT64_C(512) << 10)
#define SAMPLES 9
#define SAMPLE_NS_MIN UINT64_C(4000000)

/* One function on one shape; `a`, `b` and `bits` are as large as it takes. */
struct load {
	const struct bitmap_engine *engine;
	struct bitmap_tensor tensor; /* its data is a */
	unsigned char *a;
	unsigned char *b;
	unsigned char *packed;
	uint64_t *bits;
};

typedef void run_fn(const struct load *load);

static void run_scan(const struct load *load)
{
	load->engine->scan(&load->tensor, load->bits);
}

static void run_scan_range(const struct load *load)
{
	struct bitmap_range range;

	load->engine->scan_range(&load->tensor, load->bits, &range);
}

static void run_pack(const struct load *load)
{
	load->engine->pack(&load->tensor, load->bits, load->b);
}

static void run_unpack(const struct load *load)
{
	load->engine->clear(load->a, load->tensor.count * dtype_bytes(load->tensor.dtype));
	load->engine->unpack(&load->tensor, load->bits, load->b, load->a);
}

static void run_reduce(const struct load *load)
{
	load->engine->reduce(load->a, load->b, load->tensor.count, load->tensor.dtype, REDUCE_SUM);
}

static void run_load(const struct load *load)
{
	load->engine->load(load->a, load->b, load->tensor.count, load->tensor.dtype);
}

static void run_encode(const struct load *load)
{
	load->engine->fixed_encode(load->b, load->a, load->tensor.count, DTYPE_I32, 20);
}

static void run_decode(const struct load *load)
{
	load->engine->fixed_decode(load->a, load->b, load->tensor.count, DTYPE_I32, 20, 1);
}

#define SEGMENT_BLOCKS 16384 /* PROTOCOL.md section 4.1 */

/* One segment's tensor, and where the others' parts of it are. */
static struct bitmap_tensor segment_of(const struct load *load, uint64_t first)
{
	const struct bitmap_tensor *whole = &load->tensor;
	uint64_t elems = SEGMENT_BLOCKS * whole->block_elems;
	uint64_t at = first * whole->block_elems;

	return (struct bitmap_tensor){
		.data = (const unsigned char *)whole->data + at * dtype_bytes(whole->dtype),
		.count = elems < whole->count - at ? elems : whole->count - at,
		.block_elems = whole->block_elems,
		.dtype = whole->dtype,
	};
}

static uint8_t coded[SEGMENT_BLOCKS / 8];

static void run_code(const struct load *load)
{
	const uint64_t blocks = bitmap_block_count(load->tensor.count, load->tensor.block_elems);

	for (uint64_t at = 0; at < blocks; at += SEGMENT_BLOCKS)
		bits_write(load->bits + at / 64,
		           blocks - at < SEGMENT_BLOCKS ? blocks - at : SEGMENT_BLOCKS, coded);
}

/* All of scan, code, pack and unpack to `out`: a segment's blocks are packed into a piece of memory. */
static void run_segments(const struct load *load, unsigned char *out)
{
	const uint64_t blocks = bitmap_block_count(load->tensor.count, load->tensor.block_elems);
	static unsigned char packed[SEGMENT_BLOCKS * 64];

	for (uint64_t at = 0; at < blocks; at += SEGMENT_BLOCKS) {
		struct bitmap_tensor segment = segment_of(load, at);
		uint64_t *bits = load->bits + at / 64;
		uint64_t offset = (uint64_t)((const unsigned char *)segment.data - load->a);

		load->engine->scan(&segment, bits);
		bits_write(bits, bitmap_block_count(segment.count, segment.block_elems), coded);
		load->engine->pack(&segment, bits, packed);
		if (out != load->a)
			memset(out + offset, 0, segment.count * dtype_bytes(segment.dtype));
		load->engine->unpack(&segment, bits, packed, out + offset);
	}
}

static void run_all(const struct load *load)
{
	run_segments(load, load->b);
}

static void run_all_in_place(const struct load *load)
{
	run_segments(load, load->a);
}

static void run_unpack_other(const struct load *load)
{
	load->engine->clear(load->b, load->tensor.count * dtype_bytes(load->tensor.dtype));
	load->engine->unpack(&load->tensor, load->bits, load->packed, load->b);
}

static void run_pack_other(const struct load *load)
{
	load->engine->pack(&load->tensor, load->bits, load->packed);
}

static uint64_t read_sink;

typedef uint64_t wide __attribute__((vector_size(64), aligned(8)));

/* The loop that only reads, in the widest registers that there are. */
__attribute__((target_clones("avx512f", "avx2", "default"))) static void
read_all(const unsigned char *at, uint64_t bytes)
{
	wide a = {0}, b = a, c = a, d = a;

	for (const wide *from = (const void *)at, *end = from + bytes / sizeof(*from); from < end;
	     from += 4) {
		a |= from[0];
		b |= from[1];
		c |= from[2];
		d |= from[3];
	}
	a |= b | c | d;
	for (int i = 0; i < 8; i++)
		read_sink |= a[i];
}

static void run_read(const struct load *load)
{
	read_all(load->a, load->tensor.count);
}

static void run_memcpy(const struct load *load)
{
	memcpy(load->b, load->a, load->tensor.count);
}

/* Of this thread: what others do on a shared machine does not count. */
static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int compare_double(const void *a, const void *b)
{
	const double x = *(const double *)a;
	const double y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Median nanoseconds of one call. */
static double time_ns(run_fn *run, const struct load *load)
{
	double samples[SAMPLES];

	run(load); /* the first touch of every page */
	for (unsigned s = 0; s < SAMPLES; s++) {
		uint64_t start = now_ns();
		uint64_t calls = 0;
		uint64_t elapsed;

		do {
			run(load);
			calls++;
			elapsed = now_ns() - start;
		} while (elapsed < SAMPLE_NS_MIN);
		samples[s] = (double)elapsed / (double)calls;
	}
	qsort(samples, SAMPLES, sizeof(samples[0]), compare_double);
	return samples[SAMPLES / 2];
}

struct row {
	const char *name;
	run_fn *run;
	enum dtype dtype;
	uint32_t block_elems;
	double density; /* of the tensor, or of the bitmap for pack and unpack */
	/* Bytes that one element costs: read or written whatever the density, and if non-zero. */
	uint32_t bytes_always;
	uint32_t bytes_nonzero;
	uint32_t set_bytes; /* of working set per element, in both buffers */
	bool reads_only;
};

static const struct row rows[] = {
	{"scan", run_scan, DTYPE_F32, 256, 0, 4, 0, 4, true},
	{"scan", run_scan, DTYPE_F32, 256, 0.01, 4, 0, 4, true},
	{"scan", run_scan, DTYPE_F32, 256, 0.1, 4, 0, 4, true},
	{"scan", run_scan, DTYPE_F32, 256, 1, 4, 0, 4, true},
	{"scan_range", run_scan_range, DTYPE_F32, 256, 0.1, 4, 0, 4, true},
	{"pack", run_pack, DTYPE_F32, 256, 0.1, 0, 8, 8, false},
	{"unpack", run_unpack, DTYPE_F32, 256, 0.1, 4, 4, 8, false},
	{"pack", run_pack, DTYPE_F32, 256, 1, 0, 8, 8, false},
	{"unpack", run_unpack, DTYPE_F32, 256, 1, 4, 4, 8, false},
	{"scan", run_scan, DTYPE_F32, 32, 0, 4, 0, 4, true},
	{"scan", run_scan, DTYPE_F32, 32, 0.1, 4, 0, 4, true},
	{"scan", run_scan, DTYPE_F16, 32, 0.1, 2, 0, 2, true},
	{"reduce sum", run_reduce, DTYPE_F32, 256, 1, 12, 0, 8, false},
	{"reduce sum", run_reduce, DTYPE_BF16, 256, 1, 10, 0, 6, false},
	{"load", run_load, DTYPE_F32, 256, 1, 8, 0, 8, false},
	{"fixed_encode", run_encode, DTYPE_F32, 256, 1, 8, 0, 8, false},
	{"fixed_decode", run_decode, DTYPE_F32, 256, 1, 8, 0, 8, false},
};

static bool chance(uint64_t *state, double of_one)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (double)(*state >> 11) * 0x1p-53 < of_one;
}

/* Ones in some blocks of a, and those blocks' bits. */
static void fill(struct load *load, const struct row *row, uint64_t set_bytes)
{
	const uint64_t block_bytes = row->block_elems * dtype_bytes(row->dtype);
	uint64_t count = set_bytes / row->set_bytes / row->block_elems * row->block_elems;
	uint64_t blocks = bitmap_block_count(count, row->block_elems);
	uint64_t random = 1;

	load->tensor = (struct bitmap_tensor){load->a, count, row->block_elems, row->dtype};
	memset(load->a, 0, set_bytes);
	memset(load->b, 0, set_bytes);
	memset(load->bits, 0, bitmap_word_count(blocks) * sizeof(load->bits[0]));
	for (uint64_t b = 0; b < blocks; b++)
		if (chance(&random, row->density)) {
			memset(load->a + b * block_bytes, 0x3c, block_bytes);
			load->bits[b / 64] |= UINT64_C(1) << (b % 64);
		}
}

static double bytes_moved(const struct load *load, const struct row *row)
{
	const double count = (double)load->tensor.count;

	return count * row->bytes_always + count * row->density * row->bytes_nonzero;
}

static void print_rates(struct load *load, const struct row *row, uint64_t set_bytes,
                        const double limits[2])
{
	double rate;

	fill(load, row, set_bytes);
	rate = bytes_moved(load, row) / time_ns(row->run, load);
	printf("  %8.1f  %4.2f", rate, rate / limits[row->reads_only ? 0 : 1]);
}

/* GB/s of reading and of copying a working set. */
static void measure_limits(struct load *load, uint64_t set_bytes, double limits[2])
{
	memset(load->a, 0, set_bytes);
	memset(load->b, 0, set_bytes);
	load->tensor.count = set_bytes;
	limits[0] = (double)set_bytes / time_ns(run_read, load);
	load->tensor.count = set_bytes / 2;
	limits[1] = (double)set_bytes / time_ns(run_memcpy, load);
}

static void measure(struct load *load)
{
	double memory[2], l2[2];

	measure_limits(load, MEMORY_BYTES, memory);
	measure_limits(load, L2_BYTES, l2);
	printf("\n%s\n  %-13s %-5s %5s %7s  %8s %5s  %8s %5s\n", load->engine->name, "function",
	       "type", "block", "density", "memory", "share", "L2", "share");
	printf("  %-13s %-5s %5s %7s  %8.1f %4s  %8.1f\n", "(read loop)", "", "", "", memory[0], "",
	       l2[0]);
	printf("  %-13s %-5s %5s %7s  %8.1f %4s  %8.1f\n", "(memcpy)", "", "", "", memory[1], "",
	       l2[1]);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct row *row = &rows[i];

		printf("  %-13s %-5s %5u %7.2f", row->name, dtype_name(row->dtype),
		       row->block_elems, row->density);
		print_rates(load, row, MEMORY_BYTES, memory);
		print_rates(load, row, L2_BYTES, l2);
		printf("\n");
		fflush(stdout);
	}
}

/* ---- blocks of few elements ---- */

#define FINE_DENSITY 0.02

static const struct fine {
	enum dtype dtype;
	uint32_t block_elems;
} fine_rows[] = {
	{DTYPE_F32, 1}, {DTYPE_BF16, 1}, {DTYPE_F64, 1},
	{DTYPE_F32, 2}, {DTYPE_F32, 4},  {DTYPE_BF16, 8},
};

/* Median times of the same turn's read loop, so that what else the machine does is in both. */
static void measure_fine_row(struct load *load, const struct fine *fine)
{
	run_fn *const runs[] = {run_scan,         run_code, run_pack_other,
	                        run_unpack_other, run_all,  run_all_in_place};
	const struct row row = {.dtype = fine->dtype,
	                        .block_elems = fine->block_elems,
	                        .density = FINE_DENSITY,
	                        .set_bytes = dtype_bytes(fine->dtype)};
	struct load read = *load;
	double times[6], sum = 0, read_ns;

	fill(load, &row, MEMORY_BYTES);
	run_pack_other(load);
	read.tensor.count = MEMORY_BYTES;
	read_ns = time_ns(run_read, &read);
	printf("  %-5s %5u %7.3f  %7.2f", dtype_name(fine->dtype), fine->block_elems, FINE_DENSITY,
	       read_ns / 1e6);
	for (size_t i = 0; i < 6; i++) {
		times[i] = time_ns(runs[i], load) / read_ns;
		sum += i < 4 ? times[i] : 0;
		printf(i < 4 ? " %7.2f" : " ", times[i]);
	}
	printf("%7.2f  %8.2f %8.2f\n", sum, times[4], times[5]);
	fflush(stdout);
}

static void measure_fine(struct load *load)
{
	printf("\n%s, a tensor of %u MB, in times of reading it\n  %-5s %5s %7s  %7s %7s %7s %7s "
	       "%7s %7s  %8s %8s\n",
	       load->engine->name, (unsigned)(MEMORY_BYTES >> 20), "type", "block", "density",
	       "read ms", "scan", "code", "pack", "unpack", "sum", "segments", "in place");
	for (size_t i = 0; i < sizeof(fine_rows) / sizeof(fine_rows[0]); i++)
		measure_fine_row(load, &fine_rows[i]);
}

int main(int argc, char **argv)
{
	struct load load = {
		.a = aligned_alloc(4096, MEMORY_BYTES),
		.b = aligned_alloc(4096, MEMORY_BYTES),
		.packed = malloc(MEMORY_BYTES),
		.bits = malloc(MEMORY_BYTES / 2 / 8),
	};
	bool fine_only = argc > 2 && strcmp(argv[2], "fine") == 0;

	if (load.a == NULL || load.b == NULL || load.packed == NULL || load.bits == NULL)
		return 1;
	for (size_t i = 0; bitmap_engines[i] != NULL; i++) {
		load.engine = bitmap_engines[i];
		if (!fine_only && load.engine->usable() &&
		    (argc < 2 || strcmp(argv[1], load.engine->name) == 0))
			measure(&load);
	}
	for (size_t i = 0; bitmap_engines[i] != NULL; i++) {
		load.engine = bitmap_engines[i];
		if (load.engine->usable() && (argc < 2 || strcmp(argv[1], load.engine->name) == 0))
			measure_fine(&load);
	}
	free(load.a);
	free(load.b);
	free(load.packed);
	free(load.bits);
	return 0;
}
