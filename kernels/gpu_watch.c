// SPDX-License-Identifier: BSD-3-Clause
/*
 * gpu_watch.c - see gpu.h: streams that wait for a thread that waits for streams
 *
 * Some calls of CUDA wait until streams have got on, with a lock that every call needs: to free
 * memory, to load a kernel, to copy to memory that is not pinned, to put work into a stream that is
 * full. If a stream waits for a result meanwhile, the communicator's thread, whose launches would
 * bring it, waits for that lock. A thread of its own, which never calls CUDA, sees that and lets
 * the streams go.
 */

#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "kernels/gpu_impl.h"

#define LOOK_US 500000

uint64_t gpu_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

int gpu_stuck(const struct gpu *gpu, char *why)
{
	if (!atomic_load(&gpu->stuck))
		return 0;
	snprintf(why, GPU_WHY_BYTES,
	         "calls of CUDA on GPU %d did not come back for %d s: while a stream waits for a "
	         "result, free no memory, load no kernels, copy only to pinned memory, and keep "
	         "streams short; or use stream_goes_on",
	         gpu->device, GPU_STUCK_US / 1000000);
	return -EIO;
}

/* ---- gates ---- */

void gpu_watch_gate(struct gpu_gate *gate, bool comes)
{
	struct gpu *gpu = gate->gpu;
	struct gpu_gate **at = &gpu->gates;

	pthread_mutex_lock(&gpu->watch_lock);
	while (*at != NULL && *at != gate)
		at = &(*at)->next;
	if (*at != NULL)
		*at = gate->next;
	if (comes) {
		gate->next = gpu->gates;
		gpu->gates = gate;
	}
	pthread_mutex_unlock(&gpu->watch_lock);
}

int gpu_gate_waits(struct gpu_gate *gate, char *why)
{
	struct gpu *gpu = gate->gpu;
	int err;

	pthread_mutex_lock(&gpu->watch_lock);
	err = gpu_stuck(gpu, why);
	gate->waits = err == 0;
	pthread_mutex_unlock(&gpu->watch_lock);
	return err;
}

/* Whoever waits for what comes later is let go by release(), as after any failure. */
static void let_go(struct gpu *gpu)
{
	for (struct gpu_gate *gate = gpu->gates; gate != NULL; gate = gate->next)
		if (gate->waits)
			__atomic_store_n(gate->word, gate->turn, __ATOMIC_RELEASE);
}

/* ---- the thread ---- */

/* In the same call as at the last look, too: a process that was stopped goes on well. */
static bool is_stuck(const struct gpu *gpu, uint64_t *seen_us)
{
	uint64_t since_us = atomic_load(&gpu->inside_since_us), now_us = gpu_now_us();
	bool late = since_us != 0 && now_us > since_us && now_us - since_us > GPU_STUCK_US;
	bool again = late && since_us == *seen_us;

	*seen_us = late ? since_us : 0;
	return again;
}

static void *run(void *context)
{
	struct gpu *gpu = context;
	char why[GPU_WHY_BYTES];
	uint64_t seen_us = 0;

	pthread_setname_np(pthread_self(), "winnow-gpu");
	pthread_mutex_lock(&gpu->watch_lock);
	while (!gpu->watch_ends) {
		uint64_t us = gpu_now_us() + LOOK_US;
		struct timespec until = {.tv_sec = (time_t)(us / 1000000),
		                         .tv_nsec = (long)(us % 1000000 * 1000)};

		(void)pthread_cond_timedwait(&gpu->watch_changed, &gpu->watch_lock, &until);
		if (atomic_load(&gpu->stuck) || !is_stuck(gpu, &seen_us))
			continue;
		atomic_store(&gpu->stuck, true);
		(void)gpu_stuck(gpu, why);
		pthread_mutex_unlock(&gpu->watch_lock);
		gpu->hooks.failing(gpu->hooks.context, why);
		pthread_mutex_lock(&gpu->watch_lock);
		let_go(gpu);
	}
	pthread_mutex_unlock(&gpu->watch_lock);
	return NULL;
}

void gpu_watch_init(struct gpu *gpu)
{
	pthread_condattr_t attributes;

	pthread_mutex_init(&gpu->watch_lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&gpu->watch_changed, &attributes);
	pthread_condattr_destroy(&attributes);
}

int gpu_watch(struct gpu *gpu, char *why)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&gpu->watcher, NULL, run, gpu);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	gpu->watched = err == 0;
	if (err == 0)
		return 0;
	snprintf(why, GPU_WHY_BYTES, "cannot start a thread");
	return -ENOMEM;
}

void gpu_unwatch(struct gpu *gpu)
{
	if (gpu->watched) {
		pthread_mutex_lock(&gpu->watch_lock);
		gpu->watch_ends = true;
		pthread_cond_signal(&gpu->watch_changed);
		pthread_mutex_unlock(&gpu->watch_lock);
		pthread_join(gpu->watcher, NULL);
	}
	pthread_mutex_destroy(&gpu->watch_lock);
	pthread_cond_destroy(&gpu->watch_changed);
}
