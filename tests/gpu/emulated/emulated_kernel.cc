/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated_kernel.cc - kernels: CTAs of fibers that wait for each other
 *
 * -fsanitize=thread would take switches between fibers for races. So it is told only what orders
 * fibers, barriers and __syncwarp(), and finds races that these do not prevent.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <typeindex>

#include "tests/gpu/emulated/emulated_impl.h"

/* What the sanitizers are told, if this is built for them. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define ASAN(call) call
#else
#define ASAN(call) static_cast<void>(0)
#endif
#if defined(EMULATED_TSAN)
#include <sanitizer/tsan_interface.h>
#define TSAN(call) call
#else
#define TSAN(call) static_cast<void>(0)
#endif

/* ---- fibers ---- */

static const size_t stack_bytes = 128 << 10, guard_bytes = 4096;

/* A stack that takes turns with others on one thread. */
struct fiber {
	void *stack_pointer; /* while it does not run */
	void *stack;
	size_t stack_bytes;
	void *shadow; /* address sanitizer: its own stack of this fiber */
	void *tsan;   /* thread sanitizer: its name of this fiber */
};

/*
 * For the thread sanitizer: whether switches order this thread's fibers, for a while. The first
 * fiber that uses a library's thread-local memory, such as CTA-shared memory, allocates it for all
 * fibers.
 */
static thread_local bool fibers_ordered;

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

/* function() begins at the first switch, says that it has arrived, and never returns. */
static void fiber_make(fiber *fiber, void (*function)())
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
	TSAN(fiber->tsan = __tsan_create_fiber(0));
}

/* The first one comes from the thread's own stack, whose bounds it is told. */
static void fiber_arrived([[maybe_unused]] fiber *at, [[maybe_unused]] fiber *from)
{
	ASAN(__sanitizer_finish_switch_fiber(at->shadow, const_cast<const void **>(&from->stack),
	                                     &from->stack_bytes));
}

static void fiber_switch(fiber *from, fiber *to)
{
	ASAN(__sanitizer_start_switch_fiber(&from->shadow, to->stack, to->stack_bytes));
	TSAN(__tsan_switch_to_fiber(to->tsan, fibers_ordered ? 0 : __tsan_switch_to_fiber_no_sync));
	emulated_switch(&from->stack_pointer, to->stack_pointer);
	fiber_arrived(from, to);
}

static void fiber_end(fiber *fiber)
{
	char *stack = static_cast<char *>(fiber->stack);

	TSAN(__tsan_destroy_fiber(fiber->tsan));
	ASAN(__asan_unpoison_memory_region(stack, stack_bytes));
	munmap(stack - guard_bytes, stack_bytes + guard_bytes);
}

/* ---- CTAs ---- */

__thread struct emulated_lane *emulated_self;

static const unsigned warp_lanes = 32, most_threads = 1024;
static const unsigned warps_most = most_threads / warp_lanes;

enum state { READY, WAITS, ENDED };

static void enter();

struct lane : emulated_lane {
	::fiber fiber;
	enum state state;
	unsigned index;
	/* What it waits for. */
	const char *file;
	int line;
	enum emulated_collective what;
	int source;
	uint64_t value, result;
	explicit lane(unsigned number) : index(number)
	{
		fiber_make(&fiber, enter);
	}
	~lane()
	{
		fiber_end(&fiber);
	}
};

/* The CTA that runs on this thread. */
struct cta {
	std::vector<std::unique_ptr<lane>>
		lanes; /* as many as any kernel had; the first `threads` are used */
	unsigned threads, ended;
	std::vector<unsigned> ready;
	const std::function<void()> *body;
	uint64_t random;
	fiber home;
	std::set<std::type_index> seen; /* kernels of this kind have run on this thread */
	std::string wrong;              /* why the kernel has to end; empty: it goes on */
	char start, end,
		order[warps_most + 1]; /* named to the sanitizer; those of warps, and of all */
};

static thread_local cta *here;

static lane *self()
{
	return static_cast<lane *>(emulated_self);
}

static std::string place(const lane *lane)
{
	return lane->file + (":" + std::to_string(lane->line));
}

static void make_ready(lane *lane)
{
	lane->state = READY;
	here->ready.push_back(lane->index);
}

/*
 * Back to the loop that picks the next fiber; it knows of all that was done when the CTA is over.
 */
static void give_way()
{
	TSAN(__tsan_release(&here->end));
	fiber_switch(&self()->fiber, &here->home);
}

static bool same_place(const lane *one, const lane *other)
{
	return one->what == other->what && one->line == other->line &&
	       !std::strcmp(one->file, other->file);
}

/* All of these that have not ended are at one place: work out what each gets, and let them go. */
static void meet(const std::unique_ptr<lane> *lanes, unsigned count, enum emulated_collective what)
{
	uint64_t all = 0;

	for (unsigned i = 0; i < count; i++) {
		uint64_t value = what == EMULATED_BALLOT ? lanes[i]->value << i : lanes[i]->value;

		all = what == EMULATED_MAX ? std::max(all, value) : all | value;
	}
	for (unsigned i = 0; i < count; i++) {
		if (lanes[i]->state == ENDED)
			continue;
		lanes[i]->result = what == EMULATED_SHUFFLE ? lanes[lanes[i]->source]->value : all;
		make_ready(lanes[i].get());
	}
}

/* As CUDA: a barrier waits for no thread that has ended, a warp for each of its lanes. */
static void check(unsigned first, unsigned count, bool barrier)
{
	const lane *one = nullptr;

	for (unsigned i = first; i < first + count; i++) {
		const lane *each = i < here->threads ? here->lanes[i].get() : nullptr;

		if (each && barrier && each->state == ENDED)
			continue;
		if (!each || each->state != WAITS || (one && !same_place(each, one)))
			return;
		one = each;
	}
	if (one && (one->what == EMULATED_BARRIER) == barrier)
		meet(&here->lanes[first], count, one->what);
}

uint64_t emulated_collect(enum emulated_collective what, unsigned mask, uint64_t value, int source,
                          const char *file, int line)
{
	lane *me = self();
	const bool barrier = what == EMULATED_BARRIER, orders = barrier || what == EMULATED_SYNC;
	const unsigned first = barrier ? 0 : me->index / warp_lanes * warp_lanes;
	[[maybe_unused]] char *order = &here->order[barrier ? warps_most : me->index / warp_lanes];

	me->state = WAITS;
	me->file = file;
	me->line = line;
	me->what = what;
	me->source = source;
	me->value = value;
	if (orders)
		TSAN(__tsan_release(order));
	if (mask != 0xffffffffu)
		here->wrong = place(me) + ": a part of a warp, which is not emulated";
	check(first, barrier ? here->threads : warp_lanes, barrier);
	give_way();
	if (orders)
		TSAN(__tsan_acquire(order));
	return me->result;
}

/* What a fiber runs. It never returns: its stack has nothing to return to. */
static void enter()
{
	lane *me = self();

	fiber_arrived(&me->fiber, &here->home);
	for (;;) {
		TSAN(__tsan_acquire(&here->start));
		(*here->body)();
		me->state = ENDED;
		here->ended++;
		check(0, here->threads, true);
		give_way();
	}
}

static void prepare(uint3 block, dim3 grid)
{
	here->ended = 0;
	here->ready.clear();
	for (unsigned i = 0; i < here->threads; i++) {
		lane *each = here->lanes[i].get();

		each->thread = uint3{i, 0, 0};
		each->block = block;
		each->block_size = dim3(here->threads);
		each->grid_size = grid;
		make_ready(each);
	}
	TSAN(__tsan_release(&here->start));
}

/* Where somebody waits in vain, and who is the first there. */
static std::string stuck()
{
	std::map<std::string, unsigned> waiting;
	std::string text = std::to_string(here->ended) + " of " + std::to_string(here->threads) +
	                   " threads have ended";

	for (unsigned i = 0; i < here->threads; i++)
		if (here->lanes[i]->state == WAITS)
			waiting.emplace(place(here->lanes[i].get()), i);
	for (const auto &at : waiting)
		text += ", thread " + std::to_string(at.second) + " waits at " + at.first;
	return text;
}

static bool run_cta(uint3 block, dim3 grid)
{
	prepare(block, grid);
	while (!here->ready.empty() && here->wrong.empty()) {
		size_t pick = emulated_random(&here->random) % here->ready.size();
		lane *next = here->lanes[here->ready[pick]].get();

		here->ready[pick] = here->ready.back();
		here->ready.pop_back();
		emulated_self = next;
		fiber_switch(&here->home, &next->fiber);
	}
	emulated_self = nullptr;
	TSAN(__tsan_acquire(&here->end));
	if (here->wrong.empty() && here->ended < here->threads)
		here->wrong = stuck();
	return here->wrong.empty();
}

/* Fibers are kept for the next kernel of this thread; those of a kernel that went wrong are not. */
static void fibers(unsigned threads)
{
	static thread_local std::unique_ptr<cta> own;

	if (!here) {
		own.reset(here = new cta{});
		TSAN(here->home.tsan = __tsan_get_current_fiber());
	}
	while (here->lanes.size() < threads)
		here->lanes.push_back(
			std::make_unique<lane>(static_cast<unsigned>(here->lanes.size())));
	here->threads = threads;
}

static cudaError_t run_kernel(dim3 grid, unsigned threads, const std::function<void()> &body,
                              uint64_t random)
{
	std::vector<unsigned> order(grid.x);

	for (unsigned i = 0; i < grid.x; i++)
		order[i] = i;
	for (unsigned i = grid.x; i > 1; i--)
		std::swap(order[i - 1], order[emulated_random(&random) % i]);
	fibers(threads);
	here->body = &body;
	here->random = random;
	here->wrong.clear();
	fibers_ordered = here->seen.insert(body.target_type()).second;
	for (unsigned block : order) {
		bool well = run_cta(uint3{block, 0, 0}, grid);

		fibers_ordered = false;
		if (well)
			continue;
		std::fprintf(stderr, "emulated CUDA: CTA %u of %u: %s\n", block, grid.x,
		             here->wrong.c_str());
		here->lanes.clear();
		return cudaErrorLaunchFailure;
	}
	return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel)
{
	EMULATED_ENTER("cudaFuncGetAttributes");
	*attributes = {};
	return kernel ? cudaSuccess : emulated_fail(cudaErrorInvalidValue);
}

cudaError_t emulated_launch(cudaStream_t handle, dim3 grid, unsigned threads,
                            std::function<void()> body)
{
	EMULATED_STREAM("cudaLaunchKernel", handle, stream);
	/* As CUDA: a stream takes kernels while its device is current. */
	if (stream->device != emulated_current)
		return emulated_fail(cudaErrorInvalidResourceHandle);
	if (!threads || threads > most_threads || !grid.x || grid.y != 1 || grid.z != 1)
		return emulated_fail(cudaErrorInvalidConfiguration);
	EMULATED_CAN_FAIL("kernel");
	cudaError_t due = emulated_fault_due(can_fail);
	uint64_t random = (emulated().seed * 31 + ++emulated().kernels) * 0x9e3779b97f4a7c15u | 1;
	auto run = [=] {
		return due != cudaSuccess ? due : run_kernel(grid, threads, body, random);
	};
	return emulated_push(stream, {stream->device, run});
}
