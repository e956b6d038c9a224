/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated_kernel.cc - kernels: CTAs of fibers that wait for each other
 *
 * One thread runs all kernels, so this file needs no lock. It is built without sanitizers, which do
 * not know fibers.
 */
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <vector>

#include "tests/gpu/emulated/emulated.h"

/* ---- fibers: stacks that take turns on one thread ---- */

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

/* Its stack pointer: function() begins at the first switch, and never returns. */
static void *fiber_make(void (*function)())
{
	const size_t bytes = 128 << 10, guard = 4096;
	void *map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
	                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (map == MAP_FAILED || mprotect(map, guard, PROT_NONE))
		std::abort();
	/* Six registers, where it begins, and nothing to return to. */
	void **top = reinterpret_cast<void **>(static_cast<char *>(map) + bytes) - 8;
	top[6] = reinterpret_cast<void *>(function);
	return top;
}

/* ---- CTAs ---- */

struct emulated_lane *emulated_self;

static const unsigned warp_lanes = 32, most_threads = 1024;

enum state { READY, WAITS, ENDED };

struct lane : emulated_lane {
	void *stack_pointer;
	enum state state;
	unsigned index;
	/* What it waits for. */
	const char *file;
	int line;
	enum emulated_collective what;
	int source;
	uint64_t value, result;
};

/* The CTA that runs. Its fibers are kept for the next one; those of one that went wrong are not. */
static struct {
	std::vector<std::unique_ptr<lane>> lanes; /* the first `threads` are used */
	unsigned threads, ended;
	std::vector<unsigned> ready;
	const std::function<void()> *body;
	void *home;
	std::string wrong; /* why the kernel has to end */
} cta;

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
	cta.ready.push_back(lane->index);
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
		const lane *each = i < cta.threads ? cta.lanes[i].get() : nullptr;

		if (each && barrier && each->state == ENDED)
			continue;
		if (!each || each->state != WAITS ||
		    (one && (one->what != each->what || one->line != each->line ||
		             std::strcmp(one->file, each->file))))
			return;
		one = each;
	}
	if (one && (one->what == EMULATED_BARRIER) == barrier)
		meet(&cta.lanes[first], count, one->what);
}

uint64_t emulated_collect(enum emulated_collective what, unsigned mask, uint64_t value, int source,
                          const char *file, int line)
{
	lane *me = self();
	const bool barrier = what == EMULATED_BARRIER;

	me->state = WAITS;
	me->file = file;
	me->line = line;
	me->what = what;
	me->source = source;
	me->value = value;
	if (mask != 0xffffffffu)
		cta.wrong = place(me) + ": a part of a warp, which is not emulated";
	check(barrier ? 0 : me->index / warp_lanes * warp_lanes, barrier ? cta.threads : warp_lanes,
	      barrier);
	emulated_switch(&me->stack_pointer, cta.home);
	return me->result;
}

/* What a fiber runs. It never returns: its stack has nothing to return to. */
static void enter()
{
	lane *me = self();

	for (;;) {
		(*cta.body)();
		me->state = ENDED;
		cta.ended++;
		check(0, cta.threads, true);
		emulated_switch(&me->stack_pointer, cta.home);
	}
}

static void prepare(unsigned block, dim3 grid, unsigned threads)
{
	cta.threads = threads;
	cta.ended = 0;
	cta.ready.clear();
	for (unsigned i = 0; i < threads; i++) {
		if (cta.lanes.size() == i) {
			cta.lanes.push_back(std::make_unique<lane>());
			cta.lanes[i]->index = i;
			cta.lanes[i]->stack_pointer = fiber_make(enter);
		}
		cta.lanes[i]->thread = uint3{i, 0, 0};
		cta.lanes[i]->block = uint3{block, 0, 0};
		cta.lanes[i]->block_size = dim3(threads);
		cta.lanes[i]->grid_size = grid;
		make_ready(cta.lanes[i].get());
	}
}

/* Where somebody waits in vain, and who is the first there. */
static std::string stuck()
{
	std::map<std::string, unsigned> waiting;
	std::string text = std::to_string(cta.ended) + " of " + std::to_string(cta.threads) +
	                   " threads have ended";

	for (unsigned i = 0; i < cta.threads; i++)
		if (cta.lanes[i]->state == WAITS)
			waiting.emplace(place(cta.lanes[i].get()), i);
	for (const auto &at : waiting)
		text += ", thread " + std::to_string(at.second) + " waits at " + at.first;
	return text;
}

static void run_cta(uint64_t *random)
{
	while (!cta.ready.empty() && cta.wrong.empty()) {
		size_t pick = emulated_random(random) % cta.ready.size();
		lane *next = cta.lanes[cta.ready[pick]].get();

		cta.ready[pick] = cta.ready.back();
		cta.ready.pop_back();
		emulated_self = next;
		emulated_switch(&cta.home, next->stack_pointer);
	}
	if (cta.wrong.empty() && cta.ended < cta.threads)
		cta.wrong = stuck();
}

cudaError_t emulated_run_kernel(dim3 grid, unsigned threads, const std::function<void()> &body,
                                uint64_t random)
{
	std::vector<unsigned> order(grid.x);

	if (!threads || threads > most_threads || !grid.x || grid.y != 1 || grid.z != 1)
		return cudaErrorInvalidConfiguration;
	for (unsigned i = 0; i < grid.x; i++)
		order[i] = i;
	for (unsigned i = grid.x; i > 1; i--)
		std::swap(order[i - 1], order[emulated_random(&random) % i]);
	cta.body = &body;
	cta.wrong.clear();
	for (unsigned block : order) {
		prepare(block, grid, threads);
		run_cta(&random);
		if (cta.wrong.empty())
			continue;
		std::fprintf(stderr, "emulated CUDA: CTA %u of %u: %s\n", block, grid.x,
		             cta.wrong.c_str());
		cta.lanes.clear();
		return cudaErrorLaunchFailure;
	}
	return cudaSuccess;
}
