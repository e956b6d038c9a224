/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bitmap_impl.h - declarations that the files of bitmap/ share; private to bitmap/
 *
 * An engine is one file, compiled with the flags of one instruction set. It includes
 * bitmap_scan.h, bitmap_pack.h, bitmap_fold.h, bitmap_sparse.h and bitmap_finish.h, which hold the
 * loops that are the same in every engine, and defines the few functions that those headers call
 * hooks. All functions are static, so that other files can call code compiled with those flags
 * only through the engine's table.
 */
#ifndef BITMAP_BITMAP_IMPL_H
#define BITMAP_BITMAP_IMPL_H

#include <assert.h>
#include <string.h>
#include <sys/cdefs.h>

#include "bitmap/bitmap.h"

extern const struct bitmap_engine bitmap_scalar;
extern const struct bitmap_engine bitmap_avx2;
extern const struct bitmap_engine bitmap_avx512;
extern const struct bitmap_engine bitmap_neon;

bool bitmap_cpu_scalar(void);
bool bitmap_cpu_avx2(void);
bool bitmap_cpu_avx512(void);
bool bitmap_cpu_neon(void);

/* Each engine's file ends with this. */
#define DEFINE_ENGINE(isa)                                                                         \
	const struct bitmap_engine bitmap_##isa = {                                                \
		.name = #isa,                                                                      \
		.usable = bitmap_cpu_##isa,                                                        \
		.scan = scan,                                                                      \
		.scan_range = scan_range,                                                          \
		.pack = pack,                                                                      \
		.unpack = unpack,                                                                  \
		.clear = clear,                                                                    \
		.reduce = reduce,                                                                  \
		.load = load,                                                                      \
		.within = within,                                                                  \
		.neutral = neutral,                                                                \
		.reduce_at = reduce_at,                                                            \
		.finish = finish,                                                                  \
		.fixed_encode = fixed_encode,                                                      \
		.fixed_decode = fixed_decode,                                                      \
	}

/* For a switch over block sizes in bytes: the compiler unrolls the call for a constant size. */
#define KNOWN(bytes, call)                                                                         \
	case bytes:                                                                                \
		call;                                                                              \
		break

/* A tensor, measured in bytes. No block is longer than the tensor, so no product overflows. */
struct cut {
	const unsigned char *data;
	uint64_t bytes;
	uint64_t block_bytes; /* of every block but the last, which may be shorter */
	uint64_t block_count;
	uint64_t care; /* repeated over 8 bytes: the bits that can make an element non-zero */
	uint32_t elem_bytes;
};

/* -0 is zero, so a float's sign does not count. */
static inline uint64_t care_mask(enum dtype dtype)
{
	static const uint64_t of_floats[] = {
		[2] = 0x7fff7fff7fff7fff, [4] = 0x7fffffff7fffffff, [8] = 0x7fffffffffffffff};

	return dtype_is_float(dtype) ? of_floats[dtype_bytes(dtype)] : UINT64_MAX;
}

static inline struct cut cut_of(const struct bitmap_tensor *tensor)
{
	const uint32_t elem_bytes = dtype_bytes(tensor->dtype);
	const uint64_t block_elems =
		tensor->block_elems < tensor->count ? tensor->block_elems : tensor->count;

	assert(elem_bytes > 0 && tensor->block_elems > 0);
	return (struct cut){
		.data = tensor->data,
		.bytes = tensor->count * elem_bytes,
		.block_bytes = block_elems * elem_bytes,
		.block_count = bitmap_block_count(tensor->count, tensor->block_elems),
		.care = care_mask(tensor->dtype),
		.elem_bytes = elem_bytes,
	};
}

static inline uint64_t last_bytes(const struct cut *cut)
{
	return cut->bytes - (cut->block_count - 1) * cut->block_bytes;
}

/* For data that may have any address, such as packets. */
#define ANY_ADDRESS __attribute__((aligned(1), may_alias))

typedef float f32_any ANY_ADDRESS;
typedef double f64_any ANY_ADDRESS;
typedef uint16_t u16_any ANY_ADDRESS;
typedef uint32_t u32_any ANY_ADDRESS;
typedef uint64_t u64_any ANY_ADDRESS;
typedef int16_t i16_any ANY_ADDRESS;
typedef int32_t i32_any ANY_ADDRESS;
typedef int64_t i64_any ANY_ADDRESS;

#endif /* BITMAP_BITMAP_IMPL_H */
