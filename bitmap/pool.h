/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pool.h - the scans of bitmap.h on several threads
 *
 * One core reads memory at about 10 GB/s; a 100 Gbit/s link that carries one block in a hundred
 * would wait for it. A pool splits a tensor at multiples of 64 blocks, so that no two threads write
 * the same word. Its results are exactly those of the engine alone.
 */
#ifndef BITMAP_POOL_H
#define BITMAP_POOL_H

#include "bitmap/bitmap.h"

#define BITMAP_POOL_THREADS_MAX 64

struct bitmap_pool;

/*
 * bitmap_pool_open - opens a pool of `threads` threads, counting the caller of bitmap_pool_scan(),
 * so 1 starts no thread. Returns 0, -EINVAL when `threads` is 0 or above the maximum, -ENOMEM, or
 * -EAGAIN when the system grants no thread. The caller closes *out.
 */
int bitmap_pool_open(const struct bitmap_engine *engine, uint32_t threads,
                     struct bitmap_pool **out);

/*
 * bitmap_pool_scan - engine->scan(), or engine->scan_range() when range is not NULL. Blocks until
 * done. Only one caller at a time. The caller scans small tensors alone.
 */
void bitmap_pool_scan(struct bitmap_pool *pool, const struct bitmap_tensor *tensor, uint64_t bits[],
                      struct bitmap_range *range);

/* bitmap_pool_close - stops and joins the threads; NULL is fine. */
void bitmap_pool_close(struct bitmap_pool *pool);

#endif /* BITMAP_POOL_H */
