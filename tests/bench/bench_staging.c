// SPDX-License-Identifier: BSD-3-Clause
/*
 * bench_staging.c - operations on a GPU without a network: scanned, carried out, stored, carried in
 *
 * One worker of a job of one: what it sends is the sum. So what is left is the library's own work on a
 * GPU, as a communicator's thread does it. Per segment: microseconds that calls of CUDA
 * take on the CPU; of each kind of work: microseconds from its call until the host sees its word; per
 * operation: the tensor's bytes a second. Each row is checked and printed as soon as it is there.
 *
 *   bench_staging [bytes of the tensor [repetitions [segments ahead]]]
 */

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/gpu/staging.h"

#define PAYLOAD 8972
#define WINDOW 128
#define STAGING_BYTES (UINT64_C(64) << 20)
#define SEGMENTS_MAX 65536

extern const struct gpu_calls winnow_gpu;

/* What calls take, and the works that they ask for: copies in, copies out, scans. */
enum { IN, OUT, SCAN, WORKS };
static struct {
	double call_us, work_us[WORKS];
	uint64_t calls, works[WORKS], asked_ns[WORKS];
	struct gpu_word word[WORKS];
} meter;

static struct gpu_calls metered;
static bool over, there;
static uint32_t ahead = 8; /* winnowd's default */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static _Noreturn void die(const char *what, const char *why)
{
	fprintf(stderr, "bench_staging: %s: %s\n", what, why);
	exit(1);
}

static void cuda(cudaError_t err, const char *what)
{
	if (err != cudaSuccess)
		die(what, cudaGetErrorString(err));
}

/* ---- calls, with a watch ---- */

static int called(uint64_t begun_ns, int work, struct gpu_word word, int err)
{
	meter.asked_ns[work] = now_ns();
	meter.call_us += (double)(meter.asked_ns[work] - begun_ns) / 1000;
	meter.calls++;
	meter.word[work] = word;
	return err;
}

static int metered_scan(struct gpu *gpu, const struct gpu_scan *scan, struct why *why)
{
	uint64_t begun_ns = now_ns();

	return called(begun_ns, SCAN, scan->done, winnow_gpu.scan(gpu, scan, why));
}

static int metered_copy(struct gpu *gpu, const struct gpu_copy *copy, struct why *why)
{
	uint64_t begun_ns = now_ns();

	return called(begun_ns, copy->out ? OUT : IN, copy->done, winnow_gpu.copy(gpu, copy, why));
}

/* Has a work come to its end? */
static void look(void)
{
	for (int i = 0; i < WORKS; i++) {
		struct gpu_word *word = &meter.word[i];

		if (word->at == NULL || __atomic_load_n(word->at, __ATOMIC_ACQUIRE) != word->value)
			continue;
		meter.work_us[i] += (double)(now_ns() - meter.asked_ns[i]) / 1000;
		meter.works[i]++;
		word->at = NULL;
	}
}

static double mean_us(int work)
{
	return meter.works[work] > 0 ? meter.work_us[work] / (double)meter.works[work] : 0;
}

static void passed(void *context, bool is_there)
{
	(void)context;
	over = true;
	there = is_there;
}

/* ---- an operation ---- */

struct segment {
	uint32_t first, end, sent; /* frames */
	uint32_t blocks;           /* of the union */
};

static struct segment segments[SEGMENTS_MAX];

static void cut(struct allreduce *task)
{
	struct geometry_input input = {
		.count = task->count,
		.block_elems = task->block_elems,
		.elem_bytes = 4,
		.shard_count = 1,
		.payload = PAYLOAD,
	};

	if (!geometry_compute(&input, &task->cut) || task->cut.segment_count > SEGMENTS_MAX ||
	    task->cut.eager)
		die("the tensor", "has too few or too many blocks");
}

/* What the engine and an aggregator do with a segment before there are frames. */
static void announce(struct allreduce *task, uint32_t number, uint32_t *first, uint32_t edge)
{
	uint64_t bits[GPU_PLAN_WORDS];
	struct bitmap_range range;
	struct access_scan scan = {.bits = bits, .range = &range};
	const struct geometry_segment cut = geometry_segment(&task->cut, number);
	struct access_frame plan = {.segment = number,
	                            .cut = &cut,
	                            .united = bits,
	                            .own = bits,
	                            .number = *first,
	                            .edge = edge,
	                            .wire = dtype_in_form(task->form, (enum dtype)task->dtype),
	                            .shift = 16};

	plan.count = (uint32_t)staging_access.scan(task, number, &scan);
	(void)staging_access.plan(task, &plan);
	segments[number] = (struct segment){.first = *first, .sent = *first, .end = *first};
	segments[number].blocks = plan.count;
	if (plan.count > 0)
		segments[number].end += geometry_frame_count(&cut.frames, plan.count);
	*first = segments[number].end;
}

static struct access_frame frame_next(const struct allreduce *task, uint32_t at)
{
	const struct segment *s = &segments[at];
	const struct geometry_frames *f = &task->cut.one.frames;
	uint32_t place = s->sent - s->first, index = place / f->block_parts;
	uint32_t left = s->blocks - index * f->frame_blocks;

	return (struct access_frame){
		.segment = at,
		.number = s->sent,
		.edge = s->sent,
		.count = left < f->frame_blocks ? left : f->frame_blocks,
		.own_count = left < f->frame_blocks ? left : f->frame_blocks,
		.unit_bytes = geometry_part_bytes(f, place % f->block_parts),
	};
}

/* Frames that are packed come back at once. False: nothing has moved. */
static bool move(struct allreduce *task, uint32_t *at, uint32_t announced)
{
	bool any = false;

	while (*at < announced) {
		struct segment *s = &segments[*at];
		struct access_frame frame;
		struct packet_out out = {.piece_count = 1};

		if (s->sent == s->end) {
			(*at)++;
			any = true;
			continue;
		}
		frame = frame_next(task, *at);
		if (!staging_access.pushable(task, &frame))
			return any;
		staging_access.push(task, &frame, &out);
		if (!staging_access.store(task, &frame, out.pieces[1].iov_base))
			return any;
		s->sent++;
		any = true;
	}
	return any;
}

/* One look at the GPU, as the communicator's thread has it; now and then at whether it is well. */
static void turn(struct staging *staging)
{
	static uint64_t looks;

	(void)staging_turn(staging, ++looks % 4096 == 0);
	look();
	if (staging_error(staging)[0] != '\0')
		die("the GPU", staging_error(staging));
}

static double operate(struct staging *staging, struct allreduce *task, cudaStream_t stream)
{
	struct staged staged = {.staging = staging};
	uint32_t announced = 0, at = 0, first = 0;
	uint64_t begun_ns = now_ns();
	struct why why;

	if (winnow_gpu.mark(0, stream, &staged.mark, &why) != 0)
		die("mark", why.text);
	task->access = &staging_access;
	/* cppcheck-suppress autoVariables ; the operation ends here */
	task->access_state = &staged;
	(void)staging_access.begin(task);
	over = false;
	while (at < task->cut.segment_count) {
		while (announced < task->cut.segment_count &&
		       staging_access.ready(task, announced)) {
			uint32_t edge = at < announced ? segments[at].sent : first;

			announce(task, announced++, &first, edge);
		}
		(void)move(task, &at, announced);
		turn(staging);
	}
	(void)staging_finish(&staged, false);
	while (!over)
		turn(staging);
	if (!there)
		die("the GPU", staging_error(staging));
	return (double)(now_ns() - begun_ns) / 1e9;
}

/* ---- rows ---- */

static float value(uint64_t i, uint32_t block, double density)
{
	uint64_t mixed = (i / block + 1) * UINT64_C(0x9e3779b97f4a7c15);

	return (double)(mixed >> 40) < density * (1 << 24) ? (float)(i % 7) + 1 : 0;
}

static void row(uint64_t bytes, uint32_t block_bytes, double density, int times)
{
	struct staging_config config = {.calls = &metered,
	                                .world = 1,
	                                .shape = {.channels = 1,
	                                          .payload = PAYLOAD,
	                                          .window = WINDOW,
	                                          .op_slots = 4,
	                                          .segments_ahead = ahead},
	                                .pinned_bytes = STAGING_BYTES,
	                                .passed = passed};
	struct allreduce task = {.count = bytes / 4,
	                         .block_elems = block_bytes / 4,
	                         .dtype = DTYPE_F32,
	                         .reduction = REDUCE_SUM};
	struct why why;
	struct staging *staging;
	cudaStream_t stream;
	float *host = malloc(bytes), *send, *recv;
	double best = 1e9, took, segment_count;

	cuda(cudaMalloc((void **)&send, bytes), "cudaMalloc");
	cuda(cudaMalloc((void **)&recv, bytes), "cudaMalloc");
	cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
	for (uint64_t i = 0; i < task.count; i++)
		host[i] = value(i, block_bytes / 4, density);
	cuda(cudaMemcpy(send, host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
	task.send = send;
	task.recv = recv;
	cut(&task);
	if (staging_open(&config, &staging, &why) != 0)
		die("staging_open", why.text);
	(void)operate(staging, &task, stream);
	memset(&meter, 0, sizeof(meter));
	for (int i = 0; i < times; i++) {
		took = operate(staging, &task, stream);
		best = took < best ? took : best;
	}
	cuda(cudaMemcpy(host, recv, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
	for (uint64_t i = 0; i < task.count; i++)
		if (host[i] != value(i, block_bytes / 4, density))
			die("a row", "the result is wrong");
	segment_count = (double)task.cut.segment_count * times;
	printf("| %u | %.3f | %.3f | %.2f | %.1f | %.0f | %.0f | %.0f |\n", block_bytes, density,
	       best * 1e3, (double)meter.calls / segment_count, meter.call_us / segment_count,
	       mean_us(SCAN), mean_us(OUT), mean_us(IN));
	fflush(stdout);
	staging_close(staging);
	cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
	cuda(cudaFree(send), "cudaFree");
	cuda(cudaFree(recv), "cudaFree");
	free(host);
}

int main(int argc, char **argv)
{
	static const uint32_t blocks[] = {1024, 256, 4096};
	static const double densities[] = {0.01, 0.001, 0.1, 1};
	uint64_t bytes = argc > 1 ? strtoull(argv[1], NULL, 0) : UINT64_C(100) << 20;
	int times = argc > 2 ? atoi(argv[2]) : 7;

	if (argc > 3)
		ahead = (uint32_t)atoi(argv[3]);
	metered = winnow_gpu;
	metered.scan = metered_scan;
	metered.copy = metered_copy;
	printf("One worker, no network, %.0f MB, %u segments ahead: the best of %d.\n\n",
	       (double)bytes / 1e6, ahead, times);
	printf("| block, bytes | density | ms | calls a segment | CPU us of them | us a scan "
	       "| us a copy out | us a copy in |\n|---|---|---|---|---|---|---|---|\n");
	for (size_t b = 0; b < sizeof(blocks) / sizeof(blocks[0]); b++)
		for (size_t d = 0; d < sizeof(densities) / sizeof(densities[0]); d++)
			row(bytes, blocks[b], densities[d], times);
	return 0;
}
