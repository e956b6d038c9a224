/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated_fiber.h - stacks that take turns on one thread, and the calls that tell sanitizers
 */
#ifndef WINNOW_EMULATED_FIBER_H
#define WINNOW_EMULATED_FIBER_H

#include <stddef.h>

struct emulated_fiber {
	void *stack_pointer; /* while it does not run */
	void *stack;
	size_t stack_bytes;
	void *shadow; /* address sanitizer: its own stack of this fiber */
	void *tsan;   /* thread sanitizer: its name of this fiber */
};

/* This thread as it is: where the first switch comes from. */
void emulated_fiber_home(struct emulated_fiber *fiber);

/* A stack on which function() begins at the first switch, says that it has arrived, and never returns. */
void emulated_fiber_make(struct emulated_fiber *fiber, void (*function)());
void emulated_fiber_arrived(struct emulated_fiber *at);
void emulated_fiber_switch(struct emulated_fiber *from, struct emulated_fiber *to);
void emulated_fiber_end(struct emulated_fiber *fiber);

/*
 * For the thread sanitizer: whether switches order this thread's fibers, for a while. The first
 * fiber that uses a library's thread-local memory, such as CTA-shared memory, allocates it for all
 * fibers.
 */
extern thread_local bool emulated_fiber_ordered;

/* For the end of a stream's thread: its fibers. */
void emulated_thread_end();

/* One fiber's writes before a release are seen by those who acquire; elsewhere nothing. */
#if defined(EMULATED_TSAN)
#include <sanitizer/tsan_interface.h>
#define emulated_tsan_acquire __tsan_acquire
#define emulated_tsan_release __tsan_release
#else
static inline void emulated_tsan_acquire(void *)
{
}
static inline void emulated_tsan_release(void *)
{
}
#endif

#endif
