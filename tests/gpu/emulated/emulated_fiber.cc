/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated_fiber.cc - stacks that take turns on one thread
 */
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>

#include "tests/gpu/emulated/emulated_fiber.h"

#if defined(__SANITIZE_ADDRESS__)
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#endif

static const size_t stack_bytes = 128 << 10, guard_bytes = 4096;

thread_local bool emulated_fiber_ordered;

/* Saves what a call must preserve, and the stack pointer; the other way round for `to`. */
extern "C" void emulated_switch(void **from, void *to);
asm(".text\n"
    ".type emulated_switch,@function\n"
    "emulated_switch:\n"
    "	pushq %rbp\n"
    "	pushq %rbx\n"
    "	pushq %r12\n"
    "	pushq %r13\n"
    "	pushq %r14\n"
    "	pushq %r15\n"
    "	movq %rsp, (%rdi)\n"
    "	movq %rsi, %rsp\n"
    "	popq %r15\n"
    "	popq %r14\n"
    "	popq %r13\n"
    "	popq %r12\n"
    "	popq %rbx\n"
    "	popq %rbp\n"
    "	ret\n");

void emulated_fiber_home(struct emulated_fiber *fiber)
{
	*fiber = {};
#if defined(EMULATED_TSAN)
	fiber->tsan = __tsan_get_current_fiber();
#endif
#if defined(__SANITIZE_ADDRESS__)
	/* Its bounds: the sanitizer tells them at the first switch away, to whoever arrives. */
	pthread_attr_t attributes;
	pthread_getattr_np(pthread_self(), &attributes);
	pthread_attr_getstack(&attributes, &fiber->stack, &fiber->stack_bytes);
	pthread_attr_destroy(&attributes);
#endif
}

void emulated_fiber_make(struct emulated_fiber *fiber, void (*function)())
{
	void *map = mmap(nullptr, stack_bytes + guard_bytes, PROT_READ | PROT_WRITE,
	                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (map == MAP_FAILED || mprotect(map, guard_bytes, PROT_NONE)) {
		std::fprintf(stderr, "emulated CUDA: no memory for a fiber\n");
		std::abort();
	}
	*fiber = {};
	fiber->stack = static_cast<char *>(map) + guard_bytes;
	fiber->stack_bytes = stack_bytes;
	/* Six registers, where it begins, and nothing to return to. */
	fiber->stack_pointer = static_cast<char *>(fiber->stack) + stack_bytes - 8 * sizeof(void *);
	static_cast<void **>(fiber->stack_pointer)[6] = reinterpret_cast<void *>(function);
#if defined(EMULATED_TSAN)
	fiber->tsan = __tsan_create_fiber(0);
#endif
}

void emulated_fiber_arrived(struct emulated_fiber *at)
{
#if defined(__SANITIZE_ADDRESS__)
	__sanitizer_finish_switch_fiber(at->shadow, nullptr, nullptr);
#endif
	(void)at;
}

void emulated_fiber_switch(struct emulated_fiber *from, struct emulated_fiber *to)
{
#if defined(__SANITIZE_ADDRESS__)
	__sanitizer_start_switch_fiber(&from->shadow, to->stack, to->stack_bytes);
#endif
#if defined(EMULATED_TSAN)
	__tsan_switch_to_fiber(to->tsan,
	                       emulated_fiber_ordered ? 0 : __tsan_switch_to_fiber_no_sync);
#endif
	emulated_switch(&from->stack_pointer, to->stack_pointer);
	emulated_fiber_arrived(from);
}

void emulated_fiber_end(struct emulated_fiber *fiber)
{
	char *stack = static_cast<char *>(fiber->stack);

#if defined(EMULATED_TSAN)
	__tsan_destroy_fiber(fiber->tsan);
#endif
#if defined(__SANITIZE_ADDRESS__)
	__asan_unpoison_memory_region(stack, stack_bytes);
#endif
	munmap(stack - guard_bytes, stack_bytes + guard_bytes);
}
