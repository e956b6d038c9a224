/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench_gpu.cc - how near the kernels come to what the GPU's own copy does, and the bus's
 *
 * Bytes are those that must be read and written once: of a scan the tensor, of a copy its blocks twice;
 * of a copy over the bus its blocks. The share is of a cudaMemcpyAsync() in the same run: for a scan of one
 * tensor, device to device, its bytes read and written counted, too; for a copy of as many bytes as it
 * carries, between the same memories. Frames are in pinned memory, as the library's always are.
 * A time is the median of SAMPLES, each of some calls in a row between two events. Calls take turns
 * at several tensors, and copies at several sets of blocks, so that together they touch several times
 * what the L2 holds.
 *
 *   bench_gpu [bytes of a tensor]
 */

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "kernels/cuda_kernels.h"
#include "tests/unit/test_random.h"

#define TENSOR_BYTES (UINT64_C(4) << 30) /* less where a sixth of the GPU's memory is less */
#define SAMPLES 21
#define SAMPLE_MS 1.0 /* calls of one sample take about as long, or it is one call */
#define CALLS_MAX 64
#define TENSORS_MAX 12
#define TURNS_BYTES (UINT64_C(20) << 30) /* 1 % of it is several times an L2 */
#define HOST_BYTES (UINT64_C(256) << 20)
#define SETS_MAX 256 /* of blocks, that copies take in turn */
#define L2_TIMES 4   /* what they touch, as often as the L2 holds */
#define FRAME_BYTES 8896
#define SEGMENT_BLOCKS 4096u

typedef unsigned long long ull;

#define cuda_ok(call)                                                                              \
	do {                                                                                       \
		cudaError_t error_ = static_cast<cudaError_t>(call);                               \
		if (error_ != cudaSuccess) {                                                       \
			fprintf(stderr, "bench_gpu: %s: %s\n", #call, cudaGetErrorString(error_)); \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static std::vector<unsigned char *> tensors, others; /* on the device */
static unsigned char *host;                          /* pinned, HOST_BYTES or a tensor */
static uint64_t tensor_bytes, host_bytes, l2_bytes;
static uint32_t processors;
static cudaStream_t stream;
static cudaEvent_t began, ended;
static double copy_rate; /* of a whole tensor on the device: bytes read and written, a second */
static uint32_t *scratch, *found, *word; /* device; pinned; pinned */
static struct gpu_plan *plans;           /* pinned, [SETS_MAX][GPU_RUNS_MAX], likewise: */

typedef std::function<void(size_t turn)> call_t;

/* Milliseconds of one of `calls` calls in a row. */
static double sample(const call_t &call, size_t calls)
{
	static size_t turn;
	float ms;

	cuda_ok(cudaEventRecord(began, stream));
	for (size_t i = 0; i < calls; i++)
		call(turn++);
	cuda_ok(cudaEventRecord(ended, stream));
	cuda_ok(cudaEventSynchronize(ended));
	cuda_ok(cudaEventElapsedTime(&ms, began, ended));
	return static_cast<double>(ms) / static_cast<double>(calls);
}

/* Seconds, the median. */
static double measure(const call_t &call)
{
	std::vector<double> times;
	size_t calls = 1;

	sample(call, tensors.size()); /* warm-up */
	while (calls < CALLS_MAX && static_cast<double>(calls) * sample(call, calls) < SAMPLE_MS)
		calls *= 2;
	for (int i = 0; i < SAMPLES; i++)
		times.push_back(sample(call, calls));
	std::sort(times.begin(), times.end());
	return times[SAMPLES / 2] / 1000;
}

/* Of copies of so many bytes, one after the other throughout the tensors; bytes a second. */
static double rate_of_copy(uint64_t bytes, enum cudaMemcpyKind kind)
{
	const uint64_t step = (bytes + 255) / 256 * 256;
	const size_t places = std::max(UINT64_C(1), tensor_bytes / step - 1);

	return static_cast<double>(bytes) / measure([=](size_t turn) {
		       unsigned char *device = tensors[turn % tensors.size()] +
		                               turn / tensors.size() % places * step;
		       unsigned char *other = kind == cudaMemcpyDeviceToDevice
		                                      ? others[turn % others.size()]
		                                      : host;

		       cuda_ok(cudaMemcpyAsync(kind == cudaMemcpyHostToDevice ? device : other,
		                               kind == cudaMemcpyHostToDevice ? other : device,
		                               bytes, kind, stream));
	       });
}

/* ---- what is measured ---- */

struct load {
	struct bitmap_tensor tensor; /* data is set for each call */
	uint32_t block_bytes;
	double density;
	std::vector<struct gpu_copy> sets;
	uint64_t set_bytes; /* that one of them carries, the mean */
};

static void row(const struct load &load, const char *what, uint64_t bytes, double yardstick,
                double goal, const call_t &call)
{
	const double rate = static_cast<double>(bytes) / measure(call);

	printf("| %s | %u | %.2f | %.0f | %.1f | %.2f | ", what, load.block_bytes, load.density,
	       static_cast<double>(bytes) / 1e6, rate / 1e9, rate / yardstick);
	if (goal > 0)
		printf("%.2f%s |\n", goal, rate / yardstick >= goal ? "" : " missed");
	else
		printf("- |\n");
	fflush(stdout);
}

static void scan_rows(const struct load &load, uint64_t range_blocks)
{
	row(load, range_blocks > 0 ? "scan with magnitudes" : "scan", tensor_bytes, copy_rate, 0.95,
	    [&](size_t turn) {
		    struct gpu_scan scan = {};

		    scan.tensor = load.tensor;
		    scan.tensor.data = tensors[turn % tensors.size()];
		    scan.range_blocks = range_blocks;
		    scan.scratch = scratch;
		    scan.found = found;
		    scan.done = gpu_word{word, 1};
		    cuda_ok(cuda_scan(&scan, processors, stream));
	    });
}

/* The plan of the segment that begins with block `first`, of blocks drawn at random; returns their number. */
static uint32_t plan_segment(const struct load &load, struct gpu_plan *plan, uint64_t first)
{
	const uint64_t blocks = tensor_bytes / load.block_bytes;
	const uint64_t limit = static_cast<uint64_t>(load.density * 4294967296.0);
	uint32_t set = 0;

	memset(plan, 0, sizeof(*plan));
	plan->tensor_bytes = tensor_bytes;
	plan->first_index = first;
	plan->shard_count = 1;
	plan->block_bytes = load.block_bytes;
	plan->frame_blocks = std::min(64u, std::max(1u, FRAME_BYTES / plan->block_bytes));
	plan->block_parts = (plan->block_bytes + FRAME_BYTES - 1) / FRAME_BYTES;
	plan->part_bytes = plan->block_parts > 1 ? FRAME_BYTES : plan->block_bytes;
	plan->frame_mask = UINT32_MAX;
	plan->frame_stride = (plan->frame_blocks * plan->part_bytes + 15) / 16 * 16;
	for (uint32_t b = 0; b < std::min(uint64_t{SEGMENT_BLOCKS}, blocks - first); b++)
		if (random_bits() >> 32 < limit) {
			plan->united[b / 64] |= UINT64_C(1) << b % 64;
			set++;
		}
	memcpy(plan->own, plan->united, sizeof(plan->own));
	return set;
}

/* Set `number`: all frames of as many segments as a copy takes and `host` has room for. False: there are none. */
static bool plan_set(struct load *load, size_t number)
{
	struct gpu_plan *plan = plans + number * GPU_RUNS_MAX;
	const uint64_t most = host_bytes + host_bytes / 16;
	const uint64_t begin = number / tensors.size() * GPU_RUNS_MAX * SEGMENT_BLOCKS;
	struct gpu_copy copy = {};
	uint64_t used = 0;

	for (uint32_t s = 0; s < GPU_RUNS_MAX; s++, plan++) {
		const uint64_t first = begin + s * uint64_t{SEGMENT_BLOCKS};
		uint32_t set, count;

		if (first >= tensor_bytes / load->block_bytes)
			break;
		set = plan_segment(*load, plan, first);
		count = (set + plan->frame_blocks - 1) / plan->frame_blocks * plan->block_parts;
		if (count == 0 || used + uint64_t{count} * plan->frame_stride > most)
			continue;
		plan->send = plan->recv = tensors[number % tensors.size()];
		plan->out = plan->in = host + used;
		used += uint64_t{count} * plan->frame_stride;
		copy.runs[copy.run_count++] =
			gpu_run{plan, SEGMENT_BLOCKS / 64, 0, count, copy.frame_count};
		copy.frame_count += count;
		load->set_bytes += uint64_t{set} * plan->block_bytes;
	}
	copy.ticket = scratch;
	copy.done = gpu_word{word, 1};
	if (copy.run_count > 0)
		load->sets.push_back(copy);
	return copy.run_count > 0;
}

static void plan_sets(struct load *load)
{
	load->sets.clear();
	load->set_bytes = 0;
	for (size_t i = 0; i < SETS_MAX && load->set_bytes < L2_TIMES * l2_bytes; i++)
		if (!plan_set(load, i))
			break;
	if (!load->sets.empty())
		load->set_bytes /= load->sets.size();
}

/* As the library does it: a few CTAs hold all that the bus can, unless runs are small. */
static void copy_row(struct load *load, bool out)
{
	if (load->sets.empty())
		return;
	for (struct gpu_copy &copy : load->sets)
		copy.out = out;
	row(*load, out ? "out" : "in", load->set_bytes,
	    rate_of_copy(std::min(load->set_bytes, host_bytes),
	                 out ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice),
	    load->block_bytes >= 256 ? 0.90 : 0, [=](size_t turn) {
		    cuda_ok(cuda_copy(&load->sets[turn % load->sets.size()], GPU_BUS_CTAS, stream));
	    });
}

static void rows_of(uint32_t block_bytes, double density)
{
	struct load load = {};

	load.block_bytes = block_bytes;
	load.density = density;
	load.tensor.dtype = DTYPE_F32;
	load.tensor.block_elems = block_bytes / 4;
	load.tensor.count = tensor_bytes / 4;
	if (density == 1) {
		scan_rows(load, 0);
		scan_rows(load, SEGMENT_BLOCKS);
	}
	plan_sets(&load);
	copy_row(&load, true);
	copy_row(&load, false);
}

/* ---- conditions ---- */

static unsigned char *allocate(uint64_t bytes)
{
	unsigned char *memory;

	cuda_ok(cudaMalloc(&memory, bytes));
	cuda_ok(cudaMemset(memory, 0x3c, bytes)); /* small floats, of any type */
	return memory;
}

static void open_bench(uint64_t bytes)
{
	size_t free_bytes, total, count;
	int device, value;

	cuda_ok(cudaGetDevice(&device));
	cuda_ok(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, device));
	processors = static_cast<uint32_t>(value);
	cuda_ok(cudaDeviceGetAttribute(&value, cudaDevAttrL2CacheSize, device));
	l2_bytes = static_cast<uint64_t>(value);
	cuda_ok(cudaMemGetInfo(&free_bytes, &total));
	tensor_bytes = std::min(bytes, uint64_t{free_bytes} / 6) / 65536 * 65536;
	host_bytes = std::min(tensor_bytes, HOST_BYTES);
	count = std::min({static_cast<size_t>(TURNS_BYTES / tensor_bytes + 1),
	                  static_cast<size_t>(TENSORS_MAX),
	                  static_cast<size_t>(free_bytes * 8 / 10 / (2 * tensor_bytes))});
	for (size_t i = 0; i < count; i++) {
		tensors.push_back(allocate(tensor_bytes));
		others.push_back(allocate(tensor_bytes));
	}
	cuda_ok(cudaMalloc(&scratch, tensor_bytes / 64 / 8 + 65536));
	cuda_ok(cudaMemset(scratch, 0, tensor_bytes / 64 / 8 + 65536));
	cuda_ok(cudaHostAlloc(&found, tensor_bytes / 64 / 8 + 65536, cudaHostAllocMapped));
	cuda_ok(cudaHostAlloc(&word, 4, cudaHostAllocMapped));
	cuda_ok(cudaHostAlloc(&plans, SETS_MAX * GPU_RUNS_MAX * sizeof(*plans),
	                      cudaHostAllocMapped));
	cuda_ok(cudaHostAlloc(&host, host_bytes + host_bytes / 16, cudaHostAllocMapped));
	cuda_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	cuda_ok(cudaEventCreateWithFlags(&began, 0));
	cuda_ok(cudaEventCreateWithFlags(&ended, 0));
	cuda_ok(cudaDeviceSynchronize());
	copy_rate = 2 * rate_of_copy(tensor_bytes, cudaMemcpyDeviceToDevice);
}

int main(int argc, char **argv)
{
	const uint64_t bytes = argc > 1 ? strtoull(argv[1], nullptr, 0) : TENSOR_BYTES;

	if (argc > 2 || bytes < 1 << 16) {
		fprintf(stderr, "usage: bench_gpu [bytes of a tensor, at least 65536]\n");
		return 2;
	}
	random_state = UINT64_C(0x9e3779b97f4a7c15);
	open_bench(bytes);
	printf("%u multiprocessors, CUDA %d; %zu tensors of %.0f MB in turn; medians of %d.\n"
	       "Its own copy: %.1f GB/s read and written; to pinned memory %.1f GB/s, from it "
	       "%.1f.\n\n| kernel | block, bytes | density | MB | GB/s | share | goal |\n"
	       "|---|---|---|---|---|---|---|\n",
	       processors, CUDART_VERSION, tensors.size(), static_cast<double>(tensor_bytes) / 1e6,
	       SAMPLES, copy_rate / 1e9, rate_of_copy(host_bytes, cudaMemcpyDeviceToHost) / 1e9,
	       rate_of_copy(host_bytes, cudaMemcpyHostToDevice) / 1e9);
	for (double density : {1.0, 0.1, 0.01})
		for (uint32_t block : {128u, 256u, 1024u, 16384u})
			rows_of(block, density);
	return 0;
}
