/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_kernels.cc - the GPU's scans and copies against plain loops
 *
 * Random tensors of every type, length, block and alignment, random plans and rings. All memory
 * around and between the outputs is poisoned before a kernel runs, and every byte of it is checked
 * afterwards. Runs on the emulated CUDA (`make check`), where lanes take turns in random order, and
 * on a GPU (`make check-gpu`) with a tensor beyond 2^32 bytes.
 *
 *   test_kernels [rounds [bytes of the large tensor, 0 for none]]
 */

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/cuda_kernels.h"
#include "tests/gpu/plain_gpu.h"
#include "tests/unit/test_elements.h"

#ifdef WINNOW_EMULATED_CUDA
#define ROUNDS 400
#define LARGE_BYTES 1000000
#else
#define ROUNDS 10000
#define LARGE_BYTES UINT64_C(5000000000)
#endif
#define POISON 0xa5
#define MARGIN 256 /* poisoned on either side of memory */
#define PLANS_MAX 4

typedef std::vector<unsigned char> bytes_t;
typedef unsigned long long ull;

static cudaStream_t stream;
static uint32_t *word;    /* pinned */
static uint32_t *scratch; /* of scans, on the device: zero */
static char at_case[200] = "nothing";

#define require(condition, ...)                                                                    \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			printf("FAIL %s:%d: %s: ", __FILE__, __LINE__, at_case);                   \
			printf(__VA_ARGS__);                                                       \
			printf("\n");                                                              \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#define cuda_ok(call)                                                                              \
	do {                                                                                       \
		cudaError_t error_ = static_cast<cudaError_t>(call);                               \
		require(error_ == cudaSuccess, "%s: %s", #call, cudaGetErrorString(error_));       \
	} while (0)

/* ---- memory that is watched ---- */

struct arena {
	unsigned char *memory, *at;
	size_t total, bytes;
	bool pinned;
};

/* Aligned to `align`; half of the time the arena ends where readable memory ends. */
static struct arena arena_make(size_t bytes, size_t align, bool pinned)
{
	const size_t room = (bytes + 2 * MARGIN + 255) / 256 * 256;
	struct arena arena = {nullptr, nullptr, room, bytes, pinned};

	if (pinned)
		cuda_ok(cudaHostAlloc(&arena.memory, room, cudaHostAllocMapped));
	else
		cuda_ok(cudaMalloc(&arena.memory, room));
	cuda_ok(cudaMemset(arena.memory, POISON, room));
	cuda_ok(cudaDeviceSynchronize());
	arena.at =
		arena.memory +
		(random_below(2) == 0 ? room - bytes : MARGIN + random_below(64)) / align * align;
	return arena;
}

static void arena_fill(const struct arena *arena, const bytes_t &from)
{
	if (!from.empty())
		cuda_ok(cudaMemcpy(arena->at, from.data(), from.size(), cudaMemcpyDefault));
}

/* Is it `want`, and all around it untouched? Then it goes. */
static void arena_end(struct arena *arena, const bytes_t &want, const char *what)
{
	const size_t offset = static_cast<size_t>(arena->at - arena->memory);
	bytes_t got(arena->total);

	cuda_ok(cudaMemcpy(got.data(), arena->memory, arena->total, cudaMemcpyDefault));
	for (size_t i = 0; i < arena->total; i++) {
		const size_t at = i - offset;
		const int wanted = at < want.size() ? want[at] : POISON;

		require(got[i] == wanted, "%s: byte %lld of %zu is %#x, not %#x", what,
		        static_cast<long long>(at), arena->bytes, got[i], wanted);
	}
	cuda_ok(arena->pinned ? cudaFreeHost(arena->memory) : cudaFree(arena->memory));
}

static void finish(uint32_t value)
{
	cuda_ok(cudaStreamSynchronize(stream));
	require(*word == value, "the word is %u, not %u", *word, value);
}

/* ---- tensors ---- */

struct sample {
	struct bitmap_tensor tensor; /* data: on the device */
	size_t elem_bytes;
	uint64_t block_count;
	bytes_t host;
	struct arena device;
};

/* Any; half of them powers of two, or beside one. */
static uint64_t random_block_elems()
{
	const uint64_t power = UINT64_C(1) << random_below(17);
	const uint64_t choices[] = {
		1 + random_below(random_below(2) == 0 ? 4 : 70), 1 + random_below(3000), power,
		std::min(UINT64_C(65536), power + random_below(3) - (power > 1))};

	return choices[random_below(4)];
}

/* Up to about `bytes_max`: none, one, some blocks, odd ends or whole ones. */
static uint64_t random_count(uint64_t block_elems, size_t elem_bytes, size_t bytes_max)
{
	const uint64_t most = bytes_max / elem_bytes;
	uint64_t count = random_below((random_below(3) == 0 ? 300 : most) + 1);

	if (random_below(3) == 0)
		count = count / block_elems * block_elems;
	if (random_below(5) == 0)
		count = (64 * (1 + random_below(3)) - 1 + random_below(3)) * block_elems;
	return count < 3 * most ? count : most;
}

/* Give the device what the host has. */
static void sample_place(struct sample *s, size_t align)
{
	s->device = arena_make(s->host.size(), align, false);
	arena_fill(&s->device, s->host);
	s->tensor.data = s->device.at;
	snprintf(at_case, sizeof(at_case), "%s count %llu block %llu at %zu",
	         dtype_name(s->tensor.dtype), static_cast<ull>(s->tensor.count),
	         static_cast<ull>(s->tensor.block_elems),
	         reinterpret_cast<uintptr_t>(s->device.at) % 16);
}

static struct sample sample_make(uint64_t block_elems, size_t bytes_max, uint64_t least)
{
	struct sample s = {};
	const bool dense = random_below(6) == 0;

	s.tensor.dtype = static_cast<enum dtype>(1 + random_below(DTYPE_COUNT));
	s.elem_bytes = dtype_bytes(s.tensor.dtype);
	s.tensor.block_elems = block_elems;
	s.tensor.count = std::max(least, random_count(block_elems, s.elem_bytes, bytes_max));
	s.block_count = bitmap_block_count(s.tensor.count, block_elems);
	s.host.resize(s.tensor.count * s.elem_bytes);
	for (uint64_t i = dense ? s.tensor.count : random_below(20); i > 0 && !s.host.empty();
	     i--) {
		const enum dtype dtype = s.tensor.dtype;
		uint64_t place = dense ? i - 1 : random_below(s.tensor.count), value;

		/* Near either end of a block if chance wills, where mistakes live. */
		if (!dense && random_below(2) == 0)
			place -= place % block_elems;
		if (!dense && random_below(8) == 0)
			place = s.tensor.count - 1;
		value = random_below(4) == 0 ? UINT64_C(1) << random_below(8 * s.elem_bytes - 1)
		                             : random_element(dtype);
		store_element(&s.host[place * s.elem_bytes], dtype,
		              random_below(8) == 0 ? random_zero(dtype) : value);
	}
	sample_place(&s, s.elem_bytes);
	return s;
}

/* ---- scans ---- */

/* The sample goes. */
static void scan_sample(struct sample *s, uint64_t range)
{
	const size_t bytes = gpu_scan_room(s->block_count, range) * 4;
	struct arena found = arena_make(bytes, 16, true);
	bytes_t want(bytes + 4), zeros(bytes + 4, 0), left(zeros.size());
	struct gpu_scan scan = {};

	scan.tensor = s->tensor;
	scan.range_blocks = range;
	scan.scratch = scratch;
	scan.tensor.data = s->host.data();
	scan.found = reinterpret_cast<uint32_t *>(want.data());
	plain_scan(&scan);
	want.resize(bytes);
	scan.tensor.data = s->device.at;
	scan.found = reinterpret_cast<uint32_t *>(found.at);
	scan.done = gpu_word{word, *word + 1};
	cuda_ok(cuda_scan(&scan, 1 + static_cast<uint32_t>(random_below(4)), stream));
	finish(scan.done.value);
	arena_end(&found, want, "what a scan found");
	cuda_ok(cudaMemcpy(left.data(), scratch, left.size(), cudaMemcpyDefault));
	require(left == zeros, "scratch is not zero");
	arena_end(&s->device, s->host, "the tensor");
}

static void check_scan(size_t bytes_max)
{
	struct sample s = sample_make(random_block_elems(), bytes_max, 0);
	const bool ranged = s.tensor.dtype == DTYPE_F32 && random_below(4) != 0;

	scan_sample(&s, ranged ? 64 * (1 + random_below(1 + random_below(60))) : 0);
}

/* Zeros, but for the elements that have these bytes: at an aligned address. */
static void check_places(const std::vector<uint64_t> &bytes, struct bitmap_tensor tensor,
                         uint64_t range_blocks)
{
	struct sample s = {};

	s.tensor = tensor;
	s.elem_bytes = dtype_bytes(tensor.dtype);
	s.block_count = bitmap_block_count(tensor.count, tensor.block_elems);
	s.host.resize(tensor.count * s.elem_bytes);
	for (uint64_t byte : bytes)
		memset(&s.host[byte - byte % s.elem_bytes], 0x11, s.elem_bytes);
	sample_place(&s, 16);
	scan_sample(&s, range_blocks);
}

/* One value in all of the tensor: for the first lane of a step, the second, the last; and after the last unit. */
static void check_alone(enum dtype dtype, uint64_t block_elems)
{
	const uint64_t count = 6014 / dtype_bytes(dtype);

	for (uint64_t byte :
	     {0, 16, 496, 512, 1536, 4096, 4592, 6000, 6002, 6004, 6006, 6008, 6010, 6012})
		if (byte < count * dtype_bytes(dtype))
			check_places({byte}, {nullptr, count, block_elems, dtype},
			             dtype == DTYPE_F32 ? 64 : 0);
}

/* Values around each gigabyte and at random, beyond 2^32 bytes if the GPU has room. */
static void check_large(uint64_t bytes, uint64_t block_elems, uint64_t range_blocks)
{
	size_t free_bytes = 0, total = 0;
	std::vector<uint64_t> places = {0, bytes - 4};

	cuda_ok(cudaMemGetInfo(&free_bytes, &total));
	if (bytes == 0 || free_bytes < 2 * bytes) {
		printf("not tested: a tensor of %llu bytes\n", static_cast<ull>(bytes));
		return;
	}
	for (uint64_t at = UINT64_C(1) << 30; at + 4 <= bytes; at += UINT64_C(1) << 30)
		places.insert(places.end(), {at, at - 4});
	for (int i = 0; i < 300; i++)
		places.push_back(random_below(bytes - 3));
	check_places(places, {nullptr, bytes / 4, block_elems, DTYPE_F32}, range_blocks);
}

/* ---- plans ---- */

/* A segment of a shard, and its ring. */
struct planned {
	struct gpu_plan *plan; /* pinned */
	uint32_t words;        /* of its bitmaps; after them nobody looks */
	uint32_t frames;
	uint32_t blocks; /* of the union */
	uint32_t skip;   /* frames that are not copied */
	struct arena ring;
	bytes_t want; /* of the ring */
};

static void choose_bits(struct planned *p, uint64_t block_count)
{
	struct gpu_plan *plan = p->plan;
	const uint32_t most = 1 + random_below(random_below(2) == 0 ? 64 : GPU_PLAN_WORDS * 64);
	const uint64_t density = 1 + random_below(random_below(2) == 0 ? 3 : 50);

	for (uint32_t i = 0; i < most; i++) {
		const uint64_t block = plain_block(plan, plan->first_index + i);

		if (block >= block_count || random_below(density) != 0)
			continue;
		plan->united[i / 64] |= UINT64_C(1) << i % 64;
		p->blocks++;
		p->words = i / 64 + 1;
		if (random_below(3) != 0)
			plan->own[i / 64] |= UINT64_C(1) << i % 64;
	}
	p->words += static_cast<uint32_t>(random_below(3));
	p->words = std::min(p->words, uint32_t{GPU_PLAN_WORDS});
	memset(plan->united + p->words, POISON, (GPU_PLAN_WORDS - p->words) * 8);
	memset(plan->own + p->words, POISON, (GPU_PLAN_WORDS - p->words) * 8);
}

static void choose_frames(struct planned *p, uint32_t elem_bytes, uint32_t room, uint32_t mask)
{
	struct gpu_plan *plan = p->plan;
	const uint32_t each = std::max(elem_bytes, room / elem_bytes * elem_bytes);

	plan->block_parts = (plan->block_bytes + each - 1) / each;
	plan->part_bytes = plan->block_parts > 1 ? each : plan->block_bytes;
	plan->frame_blocks = plan->block_parts > 1 ? 1 : std::max(1u, room / plan->block_bytes);
	plan->frame_stride = (room + 8 + 15) / 16 * 16;
	plan->frame_mask = mask;
	plan->frame_first = static_cast<uint32_t>(random_bits());
	p->frames = (p->blocks + plan->frame_blocks - 1) / plan->frame_blocks * plan->block_parts;
	p->frames = std::min(p->frames, mask + 1);
}

/* A shift that keeps what the tensor has below 2^30. */
static int choose_shift(const bytes_t &host)
{
	float most = 0, value;
	int exponent;

	for (size_t i = 0; i + 4 <= host.size(); i += 4) {
		memcpy(&value, &host[i], 4);
		if (!std::isfinite(value))
			return 300;
		most = std::max(most, std::fabs(value));
	}
	std::frexp(most, &exponent);
	return most > 0 ? 30 - exponent : 190;
}

struct copied {
	struct sample s;
	bool fixed, average;
	int shift;
	uint32_t mask;
	std::vector<planned> plans;
	struct arena recv;
	bytes_t back;
};

static void add_plan(struct copied *c)
{
	struct planned p = {};
	const uint32_t room = 64 + random_below(random_below(3) == 0 ? 9000 : 1500);
	struct gpu_plan *plan;

	cuda_ok(cudaHostAlloc(&plan, sizeof(*plan), cudaHostAllocMapped));
	*plan = {};
	p.plan = plan;
	plan->shard_count = 1 + static_cast<uint32_t>(random_below(random_below(2) == 0 ? 1 : 5));
	plan->shard = static_cast<uint32_t>(random_below(plan->shard_count));
	plan->send = c->s.device.at;
	plan->recv = c->recv.at;
	plan->tensor_bytes = c->s.host.size();
	plan->block_bytes = static_cast<uint32_t>(c->s.tensor.block_elems * c->s.elem_bytes);
	plan->first_index = random_below(c->s.block_count / plan->shard_count + 1) / 64 * 64;
	plan->fixed = c->fixed;
	plan->shift = c->shift;
	plan->divisor = c->average ? 3 : 1;
	choose_bits(&p, c->s.block_count);
	choose_frames(&p, static_cast<uint32_t>(c->s.elem_bytes), room, c->mask);
	p.skip = random_below(3) == 0 ? static_cast<uint32_t>(random_below(20)) : 0;
	p.ring = arena_make(size_t{plan->frame_stride} * (c->mask + 1), 16, true);
	p.want = bytes_t(p.ring.bytes, POISON);
	plan->out = plan->in = p.ring.at;
	c->plans.push_back(p);
}

/* All frames of these plans but what they skip, in one go. */
static void run_copy(const planned *plans, size_t count, bool out)
{
	struct gpu_copy copy = {};

	copy.out = out;
	copy.ticket = scratch;
	for (const planned *p = plans; p < plans + count; p++)
		if (p->skip < p->frames) {
			copy.runs[copy.run_count++] =
				gpu_run{p->plan, p->words, p->plan->frame_first + p->skip,
			                p->frames - p->skip, copy.frame_count};
			copy.frame_count += p->frames - p->skip;
		}
	copy.done = gpu_word{word, *word + 1};
	if (copy.run_count > 0) {
		cuda_ok(cuda_copy(&copy, 1 + static_cast<uint32_t>(random_below(40)), stream));
		finish(copy.done.value);
	}
}

/* The same on the host, of one plan. */
static void plain_copy(struct copied *c, struct planned *p, bool out)
{
	struct gpu_plan plan = *p->plan;
	const struct gpu_run run = {&plan, p->words, 0, 0, 0};

	plan.send = c->s.host.data();
	plan.recv = c->back.data();
	plan.out = plan.in = p->want.data();
	for (uint32_t frame = p->skip; frame < p->frames; frame++)
		plain_frame(&run, out, plan.frame_first + frame);
}

static struct copied copied_make(size_t bytes_max)
{
	struct copied c = {};

	c.s = sample_make(random_block_elems(), bytes_max, 1);
	c.shift = choose_shift(c.s.host);
	c.fixed = c.s.tensor.dtype == DTYPE_F32 && c.shift < 200 && random_below(4) != 0;
	c.average = random_below(2) == 0;
	c.mask = (1u << random_below(9)) - 1;
	c.recv = arena_make(c.s.host.size(), c.s.elem_bytes, false);
	c.back = bytes_t(c.s.host.size(), POISON);
	for (uint32_t i = 0; i < PLANS_MAX; i++)
		add_plan(&c);
	return c;
}

static void check_copy(size_t bytes_max)
{
	struct copied c = copied_make(bytes_max);

	run_copy(c.plans.data(), c.plans.size(), true);
	for (planned &p : c.plans) {
		bytes_t got(p.want.size());

		plain_copy(&c, &p, true);
		cuda_ok(cudaMemcpy(got.data(), p.ring.at, got.size(), cudaMemcpyDefault));
		require(got == p.want, "frames that went out");
		for (unsigned char &byte : p.want)
			byte = static_cast<unsigned char>(random_bits());
		arena_fill(&p.ring, p.want);
	}
	/* Blocks of two plans may be the same: then either may be there, so one after the other. */
	for (planned &p : c.plans) {
		run_copy(&p, 1, false);
		plain_copy(&c, &p, false);
		arena_end(&p.ring, p.want, "a ring");
		cuda_ok(cudaFreeHost(p.plan));
	}
	arena_end(&c.recv, c.back, "what came back");
	arena_end(&c.s.device, c.s.host, "the tensor");
}

int main(int argc, char **argv)
{
	const unsigned long rounds = argc > 1 ? strtoul(argv[1], nullptr, 0) : ROUNDS;
	const uint64_t large = argc > 2 ? strtoull(argv[2], nullptr, 0) : LARGE_BYTES;
	const size_t scratch_bytes = (1 << 20) + large / 4000;

	random_seed();
	cuda_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	cuda_ok(cudaHostAlloc(&word, 4, cudaHostAllocMapped));
	*word = 0;
	cuda_ok(cudaMalloc(&scratch, scratch_bytes));
	cuda_ok(cudaMemset(scratch, 0, scratch_bytes));
	cuda_ok(cudaDeviceSynchronize());
	for (unsigned round = 0; round < rounds; round++) {
		check_scan(round % 50 == 49 ? 1500000 : 20000);
		check_copy(round % 50 == 49 ? 1500000 : 20000);
	}
	for (enum dtype dtype : {DTYPE_F32, DTYPE_BF16, DTYPE_F64, DTYPE_I32})
		for (uint64_t block_elems : {1, 2, 3, 8, 64, 256})
			check_alone(dtype, block_elems);
	check_large(large, 256, 0);
	check_large(large, 256, 640);
	check_large(large, 300, 64);
	printf("%lu tensors\n", rounds);
	return 0;
}
