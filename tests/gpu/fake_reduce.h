/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fake_reduce.h - a reduction of arrays, element by element, as NCCL names types and operations
 */
#ifndef TESTS_GPU_FAKE_REDUCE_H
#define TESTS_GPU_FAKE_REDUCE_H

#include <nccl.h>
#include <stddef.h>

/* out[i] = all parts' [i]; out may be one of the parts. Floats narrower than f32 are added in f32. */
void fake_reduce(ncclDataType_t type, ncclRedOp_t op, const void *const parts[], unsigned count,
                 size_t elems, void *out);

#endif
