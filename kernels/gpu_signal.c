// SPDX-License-Identifier: BSD-3-Clause
/*
 * gpu_signal.c - see gpu.h: what threads of the driver's set, until nobody wants to know any more
 *
 * Once a GPU has failed, all calls fail at once, those that wait for its streams, too, and the
 * driver begins no host function any more. But one may have begun, and nothing says when it is over.
 * So a host function is given memory that is never freed, and finds there what it shall set.
 */

#include <stdio.h>
#include <stdlib.h>

#include "kernels/gpu_impl.h"

#define PAGE_NOTICES 128

struct gpu_notice {
	struct gpu *gpu;
	struct gpu_signal *signal; /* NULL: closed */
	uint32_t under_way;        /* host functions that have not been called yet */
	struct gpu_notice *next;
};

/* Kept until the process ends, with what a GPU that has failed never called. */
struct page {
	struct page *next;
	struct gpu_notice notices[PAGE_NOTICES];
};

/* Of all below. Nobody calls CUDA with it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct page *pages;
static struct gpu_notice *unused;

static bool more_notices(void)
{
	struct page *page = calloc(1, sizeof(*page));

	if (page == NULL)
		return false;
	page->next = pages;
	pages = page;
	for (size_t i = 0; i < PAGE_NOTICES; i++) {
		page->notices[i].next = unused;
		unused = &page->notices[i];
	}
	return true;
}

int gpu_signal_open(struct gpu *gpu, struct gpu_signal *signal, char *why)
{
	struct gpu_notice *notice = NULL;

	pthread_mutex_lock(&lock);
	if (unused != NULL || more_notices()) {
		notice = unused;
		unused = notice->next;
		notice->gpu = gpu;
		notice->signal = signal;
	}
	pthread_mutex_unlock(&lock);
	signal->notice = notice;
	if (notice != NULL)
		return 0;
	snprintf(why, GPU_WHY_BYTES, "out of memory");
	return -ENOMEM;
}

/* Under the lock. */
static void leave_if_over(struct gpu_notice *notice)
{
	if (notice->signal != NULL || notice->under_way > 0)
		return;
	notice->next = unused;
	unused = notice;
}

void gpu_signal_close(struct gpu_signal *signal)
{
	struct gpu_notice *notice = signal->notice;

	if (notice == NULL)
		return;
	signal->notice = NULL;
	pthread_mutex_lock(&lock);
	notice->signal = NULL;
	leave_if_over(notice);
	pthread_mutex_unlock(&lock);
}

static void CUDART_CB notify(void *argument)
{
	struct gpu_notice *notice = argument;

	pthread_mutex_lock(&lock);
	notice->under_way--;
	if (notice->signal != NULL) {
		const struct gpu_hooks *hooks = &notice->gpu->hooks;

		atomic_store_explicit(&notice->signal->set, true, memory_order_release);
		hooks->wake(hooks->context);
	}
	leave_if_over(notice);
	pthread_mutex_unlock(&lock);
}

int gpu_signal_after(struct gpu_signal *signal, cudaStream_t stream, char *why)
{
	struct gpu_notice *notice = signal->notice;
	int err = 0;

	pthread_mutex_lock(&lock);
	notice->under_way++;
	pthread_mutex_unlock(&lock);
	TRY(notice->gpu, err, "cudaLaunchHostFunc", cudaLaunchHostFunc(stream, notify, notice));
	if (err == 0)
		return 0;
	pthread_mutex_lock(&lock);
	notice->under_way--;
	pthread_mutex_unlock(&lock);
	return err;
}
