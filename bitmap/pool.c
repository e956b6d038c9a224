// SPDX-License-Identifier: BSD-3-Clause
/*
 * pool.c - threads that scan pieces of one tensor
 *
 * A scan is cut into pieces, and each free thread takes the next one. The caller takes part from
 * the start, so a thread that is slow to wake costs nothing: once all pieces are taken the scan
 * closes, and no thread joins a closed scan.
 */

#include "bitmap/pool.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

/* A smaller scan ends before another thread has woken up. */
#define ALONE_BYTES_MAX (UINT64_C(1) << 20)

/* A piece must be small to share the work evenly, and large to hide the cost of taking it. */
#define PIECE_BYTES_MIN (UINT64_C(256) << 10)

/* One call of bitmap_pool_scan(). */
struct scan {
	struct bitmap_tensor tensor;
	uint64_t *bits;
	uint64_t piece_count;
	uint64_t piece_blocks; /* a multiple of 64, so that no two threads write one word */
	bool ranged;
};

struct bitmap_pool {
	const struct bitmap_engine *engine;
	uint32_t thread_count; /* the length of `threads`, without the caller */

	pthread_mutex_t lock; /* protects the fields below, except next_piece */
	pthread_cond_t opened;
	pthread_cond_t left;
	struct scan scan;
	struct bitmap_range range; /* The range of the pieces whose threads have left. */
	uint32_t joined;           /* The number of threads in the scan. */
	bool open;                 /* Threads may join. */
	bool stopping;

	_Alignas(64) _Atomic uint64_t next_piece;
	pthread_t threads[];
};

static const struct bitmap_range empty_range = {.exponent = BITMAP_EXPONENT_NONE};

/* Scans pieces until none is left. Returns their range. */
static struct bitmap_range scan_pieces(struct bitmap_pool *pool, const struct scan *scan)
{
	const uint64_t piece_elems = scan->piece_blocks * scan->tensor.block_elems;
	const unsigned char *data = scan->tensor.data;
	struct bitmap_range range = empty_range;
	uint64_t piece;

	while ((piece = atomic_fetch_add_explicit(&pool->next_piece, 1, memory_order_relaxed)) <
	       scan->piece_count) {
		const uint64_t first = piece * piece_elems;
		const uint64_t left = scan->tensor.count - first;
		uint64_t *bits = scan->bits + piece * (scan->piece_blocks / 64);
		struct bitmap_tensor tensor = scan->tensor;
		struct bitmap_range of_piece;

		tensor.data = data + first * dtype_bytes(tensor.dtype);
		tensor.count = left < piece_elems ? left : piece_elems;
		if (scan->ranged) {
			pool->engine->scan_range(&tensor, bits, &of_piece);
			range = bitmap_range_both(range, of_piece);
		} else {
			pool->engine->scan(&tensor, bits);
		}
	}
	return range;
}

static void *thread_main(void *argument)
{
	struct bitmap_pool *pool = argument;

	pthread_mutex_lock(&pool->lock);
	while (!pool->stopping) {
		struct bitmap_range range;
		struct scan scan;

		if (!pool->open) {
			pthread_cond_wait(&pool->opened, &pool->lock);
			continue;
		}
		scan = pool->scan;
		pool->joined++;
		pthread_mutex_unlock(&pool->lock);
		range = scan_pieces(pool, &scan);
		pthread_mutex_lock(&pool->lock);
		pool->range = bitmap_range_both(pool->range, range);
		pool->open = false; /* All pieces are taken. */
		pool->joined--;
		if (pool->joined == 0)
			pthread_cond_signal(&pool->left);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

static struct scan cut_scan(const struct bitmap_tensor *tensor, uint64_t bits[], bool ranged)
{
	const uint64_t group_bytes = 64 * tensor->block_elems * dtype_bytes(tensor->dtype);
	const uint64_t groups = (PIECE_BYTES_MIN + group_bytes - 1) / group_bytes;
	const uint64_t blocks = bitmap_block_count(tensor->count, tensor->block_elems);
	const uint64_t piece_blocks = 64 * groups;

	return (struct scan){
		.tensor = *tensor,
		.bits = bits,
		.piece_count = (blocks + piece_blocks - 1) / piece_blocks,
		.piece_blocks = piece_blocks,
		.ranged = ranged,
	};
}

static void scan_together(struct bitmap_pool *pool, const struct scan *scan,
                          struct bitmap_range *range)
{
	struct bitmap_range own;

	pthread_mutex_lock(&pool->lock);
	pool->scan = *scan;
	pool->range = empty_range;
	pool->open = true;
	/* The lock publishes this store, because all threads of an earlier scan have left. */
	atomic_store_explicit(&pool->next_piece, 0, memory_order_relaxed);
	pthread_cond_broadcast(&pool->opened);
	pthread_mutex_unlock(&pool->lock);

	own = scan_pieces(pool, scan);

	pthread_mutex_lock(&pool->lock);
	pool->open = false;
	while (pool->joined > 0)
		pthread_cond_wait(&pool->left, &pool->lock);
	if (range != NULL)
		*range = bitmap_range_both(pool->range, own);
	pthread_mutex_unlock(&pool->lock);
}

void bitmap_pool_scan(struct bitmap_pool *pool, const struct bitmap_tensor *tensor, uint64_t bits[],
                      struct bitmap_range *range)
{
	const uint64_t bytes = tensor->count * dtype_bytes(tensor->dtype);
	struct scan scan;

	/* With 64 blocks or fewer there is only one piece. This also bounds block_elems. */
	if (pool->thread_count > 0 && bytes > ALONE_BYTES_MAX &&
	    tensor->block_elems < tensor->count / 64) {
		scan = cut_scan(tensor, bits, range != NULL);
		scan_together(pool, &scan, range);
	} else if (range != NULL) {
		pool->engine->scan_range(tensor, bits, range);
	} else {
		pool->engine->scan(tensor, bits);
	}
}

/* Starts threads until there are `wanted`. They take no signals, which belong to the program. */
static int start_threads(struct bitmap_pool *pool, uint32_t wanted)
{
	sigset_t all, before;
	int err = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (pool->thread_count < wanted && err == 0) {
		err = pthread_create(&pool->threads[pool->thread_count], NULL, thread_main, pool);
		if (err == 0)
			pool->thread_count++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return err == 0 ? 0 : -EAGAIN;
}

int bitmap_pool_open(const struct bitmap_engine *engine, uint32_t threads, struct bitmap_pool **out)
{
	struct bitmap_pool *pool;
	size_t bytes = sizeof(*pool) + threads * sizeof(pool->threads[0]);
	int err;

	if (threads == 0 || threads > BITMAP_POOL_THREADS_MAX)
		return -EINVAL;
	bytes = (bytes + 63) / 64 * 64;
	pool = aligned_alloc(64, bytes);
	if (pool == NULL)
		return -ENOMEM;
	*pool = (struct bitmap_pool){.engine = engine};
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->opened, NULL);
	pthread_cond_init(&pool->left, NULL);
	err = start_threads(pool, threads - 1);
	if (err != 0) {
		bitmap_pool_close(pool);
		return err;
	}
	*out = pool;
	return 0;
}

void bitmap_pool_close(struct bitmap_pool *pool)
{
	if (pool == NULL)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->stopping = true;
	pthread_cond_broadcast(&pool->opened);
	pthread_mutex_unlock(&pool->lock);
	for (uint32_t i = 0; i < pool->thread_count; i++)
		pthread_join(pool->threads[i], NULL);
	pthread_cond_destroy(&pool->left);
	pthread_cond_destroy(&pool->opened);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}
