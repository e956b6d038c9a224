/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench_gpu.cc - how near the kernels come to what the GPU's own copy does, and PCIe's
 *
 * Bytes are those that must be read and written once: of scan the tensor, of pack and unpack the
 * set blocks twice, of unpack that clears the whole tensor and the set blocks. The share is of a
 * device-to-device cudaMemcpyAsync() of one tensor in the same run, its bytes read and written
 * counted, too, and in the last column of a copy of as many bytes, since what takes microseconds
 * pays for its start; by "host" of cudaMemcpyAsync() between the device and pinned memory. A time
 * is the median of SAMPLES, each of some calls in a row between two events. Calls take turns at several
 * tensors, so that together they touch several times what the L2 holds.
 *
 *   bench_gpu [bytes of a tensor]
 */

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/bitmap_cuda.h"
#include "tests/unit/test_random.h"

#define TENSOR_BYTES (UINT64_C(4) << 30) /* less where a sixth of the GPU's memory is less */
#define SAMPLES 21
#define SAMPLE_MS 1.0 /* calls of one sample take about as long, or it is one call */
#define CALLS_MAX 64
#define TENSORS_MAX 12
#define L2_TIMES 4
#define HOST_BYTES (UINT64_C(256) << 20)
#define HOST_CTAS 32 /* GPU_BUS_CTAS of kernels/gpu_impl.h */

#define cuda_ok(call)                                                                              \
	do {                                                                                       \
		cudaError_t cuda_error = static_cast<cudaError_t>(call);                           \
		if (cuda_error != cudaSuccess) {                                                   \
			fprintf(stderr, "bench_gpu: %s: %s\n", #call,                              \
			        cudaGetErrorString(cuda_error));                                   \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* Everything that calls use; call i works on tensors[i % tensor_count] and packed[..] alike. */
struct bench {
	std::vector<unsigned char *> tensors, packed;
	unsigned char *host; /* pinned */
	uint64_t *bits, *magnitude;
	uint32_t *ranks;
	void *scratch;
	uint64_t tensor_bytes, host_bytes, l2_bytes;
	cudaStream_t stream;
	cudaEvent_t begin, end;
	double copy, to_host, from_host; /* bytes a second */
};

/* One row of the table. */
struct load {
	struct bitmap_tensor tensor; /* data is set for each call */
	struct bitmap_cuda_form form;
	uint64_t set_count;
	uint64_t block_bytes;
	uint64_t word_count;
	uint64_t copy_bytes; /* of run_copy() */
	double density;
	bool clear;
};

typedef void run_fn(const struct bench *bench, const struct load *load, size_t turn);

static struct bitmap_tensor tensor_of(const struct bench *bench, const struct load *load,
                                      size_t turn)
{
	struct bitmap_tensor tensor = load->tensor;

	tensor.data = bench->tensors[turn % bench->tensors.size()];
	return tensor;
}

static unsigned char *packed_of(const struct bench *bench, size_t turn)
{
	return bench->packed[turn % bench->packed.size()];
}

static void run_copy(const struct bench *bench, const struct load *load, size_t turn)
{
	cuda_ok(cudaMemcpyAsync(packed_of(bench, turn),
	                        bench->tensors[turn % bench->tensors.size()], load->copy_bytes,
	                        cudaMemcpyDeviceToDevice, bench->stream));
}

static void run_to_host(const struct bench *bench, const struct load *, size_t turn)
{
	cuda_ok(cudaMemcpyAsync(bench->host, packed_of(bench, turn), bench->host_bytes,
	                        cudaMemcpyDeviceToHost, bench->stream));
}

static void run_from_host(const struct bench *bench, const struct load *, size_t turn)
{
	cuda_ok(cudaMemcpyAsync(packed_of(bench, turn), bench->host, bench->host_bytes,
	                        cudaMemcpyHostToDevice, bench->stream));
}

static void run_scan(const struct bench *bench, const struct load *load, size_t turn)
{
	const struct bitmap_tensor tensor = tensor_of(bench, load, turn);

	cuda_ok(bitmap_cuda_kernels.scan(&tensor, bench->bits, nullptr, bench->stream));
}

static void run_scan_range(const struct bench *bench, const struct load *load, size_t turn)
{
	const struct bitmap_tensor tensor = tensor_of(bench, load, turn);

	cuda_ok(bitmap_cuda_kernels.scan(&tensor, bench->bits, bench->magnitude, bench->stream));
}

static void run_rank(const struct bench *bench, const struct load *load, size_t)
{
	cuda_ok(bitmap_cuda_kernels.rank(
		bench->bits, bitmap_block_count(load->tensor.count, load->tensor.block_elems),
		bench->ranks, bench->scratch, bench->stream));
}

static void pack_to(const struct bench *bench, const struct load *load, size_t turn, void *dst)
{
	const struct bitmap_tensor tensor = tensor_of(bench, load, turn);

	cuda_ok(bitmap_cuda_kernels.pack(&tensor, bench->bits, bench->ranks, &load->form, dst,
	                                 bench->stream));
}

static void unpack_from(const struct bench *bench, const struct load *load, size_t turn,
                        const void *src)
{
	const struct bitmap_tensor tensor = tensor_of(bench, load, turn);
	const struct bitmap_cuda_deal deal = {0, 1, 0,
	                                      bitmap_block_count(tensor.count, tensor.block_elems)};

	cuda_ok(bitmap_cuda_kernels.unpack(&tensor, &deal, bench->bits, bench->ranks, src,
	                                   &load->form, load->clear,
	                                   const_cast<void *>(tensor.data), bench->stream));
}

static void run_pack(const struct bench *bench, const struct load *load, size_t turn)
{
	pack_to(bench, load, turn, packed_of(bench, turn));
}

static void run_unpack(const struct bench *bench, const struct load *load, size_t turn)
{
	unpack_from(bench, load, turn, packed_of(bench, turn));
}

static void run_pack_host(const struct bench *bench, const struct load *load, size_t turn)
{
	pack_to(bench, load, turn, bench->host);
}

static void run_unpack_host(const struct bench *bench, const struct load *load, size_t turn)
{
	unpack_from(bench, load, turn, bench->host);
}

/* Milliseconds of one of `calls` calls in a row. */
static double sample(const struct bench *bench, const struct load *load, run_fn *run, size_t calls)
{
	static size_t turn;
	float ms;

	cuda_ok(cudaEventRecord(bench->begin, bench->stream));
	for (size_t i = 0; i < calls; i++)
		run(bench, load, turn++);
	cuda_ok(cudaEventRecord(bench->end, bench->stream));
	cuda_ok(cudaEventSynchronize(bench->end));
	cuda_ok(cudaEventElapsedTime(&ms, bench->begin, bench->end));
	return static_cast<double>(ms) / static_cast<double>(calls);
}

/* Seconds, the median. */
static double measure(const struct bench *bench, const struct load *load, run_fn *run)
{
	std::vector<double> times;
	size_t calls = 1;

	sample(bench, load, run, bench->tensors.size()); /* warm-up */
	while (calls < CALLS_MAX &&
	       static_cast<double>(calls) * sample(bench, load, run, calls) < SAMPLE_MS)
		calls *= 2;
	for (int i = 0; i < SAMPLES; i++)
		times.push_back(sample(bench, load, run, calls));
	std::sort(times.begin(), times.end());
	return times[SAMPLES / 2] / 1000;
}

/* Bytes a second of a copy within the device that reads and writes so many together. */
static double copy_as_long(const struct bench *bench, uint64_t bytes)
{
	struct load copy = {};

	copy.copy_bytes = bytes / 2;
	return static_cast<double>(bytes) / measure(bench, &copy, run_copy);
}

static void row(const struct bench *bench, const struct load *load, const char *what, run_fn *run,
                uint64_t bytes, double yardstick, double goal)
{
	const double rate = static_cast<double>(bytes) / measure(bench, load, run);

	printf("| %s | %s | %llu | %.2f | %.1f | %.2f | ", what, dtype_name(load->tensor.dtype),
	       static_cast<unsigned long long>(load->tensor.block_elems), load->density, rate / 1e9,
	       rate / yardstick);
	if (goal > 0)
		printf("%.2f%s | %.2f |\n", goal, rate / yardstick >= goal ? "" : " missed",
		       rate / copy_as_long(bench, bytes));
	else
		printf("- | - |\n");
	fflush(stdout);
}

/* Bits of this density, and tensors whose blocks are non-zero where the bits say so. */
static void prepare(const struct bench *bench, struct load *load)
{
	const uint64_t blocks = bitmap_block_count(load->tensor.count, load->tensor.block_elems);
	const uint64_t limit = static_cast<uint64_t>(load->density * 4294967296.0);
	std::vector<uint64_t> bits(bitmap_word_count(blocks), 0);
	const bool cleared = load->clear;

	load->set_count = 0;
	for (uint64_t b = 0; b < blocks; b++)
		if (random_bits() >> 32 < limit) {
			bits[b / 64] |= UINT64_C(1) << b % 64;
			load->set_count++;
		}
	load->word_count = bits.size();
	load->block_bytes = load->tensor.block_elems * dtype_bytes(load->tensor.dtype);
	cuda_ok(cudaMemcpyAsync(bench->bits, bits.data(), bits.size() * sizeof(bits[0]),
	                        cudaMemcpyHostToDevice, bench->stream));
	run_rank(bench, load, 0);
	load->clear = true;
	for (size_t turn = 0; turn < bench->tensors.size(); turn++)
		unpack_from(bench, load, turn, bench->packed[0]);
	load->clear = cleared;
	cuda_ok(cudaStreamSynchronize(bench->stream));
}

/* Across the bus: a few CTAs, as libwinnow does it, should be as fast as all that fit. */
static void host_rows(const struct bench *bench, struct load *load, uint64_t bytes)
{
	load->form.ctas_max = HOST_CTAS;
	row(bench, load, "pack to host, few CTAs", run_pack_host, bytes, bench->to_host, 0);
	row(bench, load, "unpack of host, few CTAs", run_unpack_host, bytes, bench->from_host, 0);
	load->form.ctas_max = 0;
	row(bench, load, "pack to host", run_pack_host, bytes, bench->to_host, 0);
	row(bench, load, "unpack of host", run_unpack_host, bytes, bench->from_host, 0);
}

static void rows_of(const struct bench *bench, enum dtype dtype, uint64_t block_elems,
                    double density)
{
	const uint64_t count = bench->tensor_bytes / dtype_bytes(dtype);
	struct load load = {};
	uint64_t set_bytes;

	load.tensor = {nullptr, count / block_elems * block_elems, block_elems, dtype};
	load.form = {false, 0, 1, 0};
	load.density = density;
	prepare(bench, &load);
	set_bytes = load.set_count * load.block_bytes;
	row(bench, &load, "scan", run_scan, bench->tensor_bytes, bench->copy, 0.90);
	if (dtype_is_float(dtype))
		row(bench, &load, "scan with magnitude", run_scan_range, bench->tensor_bytes,
		    bench->copy, 0.90);
	row(bench, &load, "rank", run_rank, load.word_count * 12, bench->copy, 0);
	row(bench, &load, "pack", run_pack, 2 * set_bytes, bench->copy, 0.80);
	row(bench, &load, "unpack", run_unpack, 2 * set_bytes, bench->copy, 0.80);
	load.clear = true;
	row(bench, &load, "unpack, clear others", run_unpack, bench->tensor_bytes + set_bytes,
	    bench->copy, 0.80);
	if (dtype == DTYPE_F32) {
		load.form = {true, 20, 3, 0};
		row(bench, &load, "pack to fixed32", run_pack, 2 * set_bytes, bench->copy, 0.80);
		load.clear = false;
		row(bench, &load, "unpack of fixed32", run_unpack, 2 * set_bytes, bench->copy,
		    0.80);
		load.form = {false, 0, 1, 0};
	}
	load.clear = false;
	if (set_bytes <= bench->host_bytes)
		host_rows(bench, &load, set_bytes);
}

/* As many tensors as it takes that even the sparsest calls touch far more than the L2 holds. */
static void allocate(struct bench *bench, uint64_t tensor_bytes)
{
	size_t free_bytes, total, count;
	int device, l2_bytes;

	cuda_ok(cudaGetDevice(&device));
	cuda_ok(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, device));
	cuda_ok(cudaMemGetInfo(&free_bytes, &total));
	bench->l2_bytes = static_cast<uint64_t>(l2_bytes);
	tensor_bytes =
		std::min(tensor_bytes, static_cast<uint64_t>(free_bytes / 6)) / 65536 * 65536;
	bench->tensor_bytes = tensor_bytes;
	bench->host_bytes = std::min(tensor_bytes, HOST_BYTES);
	count = static_cast<size_t>(L2_TIMES * bench->l2_bytes * 50 / tensor_bytes + 1);
	count = std::min({count, static_cast<size_t>(TENSORS_MAX),
	                  static_cast<size_t>(free_bytes * 8 / 10 / (2 * tensor_bytes))});
	if (count == 0) {
		fprintf(stderr, "bench_gpu: two tensors of %llu bytes do not fit the GPU\n",
		        static_cast<unsigned long long>(tensor_bytes));
		exit(1);
	}
	for (size_t i = 0; i < count; i++) {
		unsigned char *tensor, *packed;

		cuda_ok(cudaMalloc(&tensor, tensor_bytes));
		cuda_ok(cudaMalloc(&packed, tensor_bytes));
		cuda_ok(cudaMemset(packed, 0x3c, tensor_bytes)); /* small floats, of any type */
		bench->tensors.push_back(tensor);
		bench->packed.push_back(packed);
	}
	/* Blocks have 32 elements of 2 bytes, at least. */
	cuda_ok(cudaMalloc(&bench->bits, tensor_bytes / 64 / 8 + 64));
	cuda_ok(cudaMalloc(&bench->ranks, tensor_bytes / 64 / 16 + 64));
	cuda_ok(cudaMalloc(&bench->scratch, bitmap_cuda_rank_scratch(tensor_bytes / 64 / 64 + 8)));
	cuda_ok(cudaMalloc(&bench->magnitude, sizeof(*bench->magnitude)));
	cuda_ok(cudaHostAlloc(&bench->host, bench->host_bytes, cudaHostAllocMapped));
	cuda_ok(cudaStreamCreateWithFlags(&bench->stream, cudaStreamNonBlocking));
	cuda_ok(cudaEventCreate(&bench->begin));
	cuda_ok(cudaEventCreate(&bench->end));
}

static void yardsticks(struct bench *bench)
{
	struct load none = {};

	none.copy_bytes = bench->tensor_bytes;
	bench->copy =
		2 * static_cast<double>(bench->tensor_bytes) / measure(bench, &none, run_copy);
	bench->to_host =
		static_cast<double>(bench->host_bytes) / measure(bench, &none, run_to_host);
	bench->from_host =
		static_cast<double>(bench->host_bytes) / measure(bench, &none, run_from_host);
}

static void print_conditions(const struct bench *bench)
{
	struct cudaDeviceProp properties;
	int device, driver, runtime;

	cuda_ok(cudaGetDevice(&device));
	cuda_ok(cudaGetDeviceProperties(&properties, device));
	cuda_ok(cudaDriverGetVersion(&driver));
	cuda_ok(cudaRuntimeGetVersion(&runtime));
	printf("%s, %d multiprocessors, %.0f MB of L2, CUDA %d.%d, driver for %d.%d. ",
	       properties.name, properties.multiProcessorCount,
	       static_cast<double>(bench->l2_bytes) / 1e6, runtime / 1000, runtime % 1000 / 10,
	       driver / 1000, driver % 1000 / 10);
	printf("%zu tensors of %.0f MB in turn; medians of %d.\n", bench->tensors.size(),
	       static_cast<double>(bench->tensor_bytes) / 1e6, SAMPLES);
	printf("Its own copy: %.1f GB/s read and written; to pinned memory %.1f GB/s, from it "
	       "%.1f.\n\n",
	       bench->copy / 1e9, bench->to_host / 1e9, bench->from_host / 1e9);
	printf("| kernel | type | block | density | GB/s | share | goal "
	       "| of a copy as long |\n|---|---|---|---|---|---|---|---|\n");
}

int main(int argc, char **argv)
{
	const uint64_t tensor_bytes = argc > 1 ? strtoull(argv[1], nullptr, 0) : TENSOR_BYTES;
	const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F64, DTYPE_I32};
	const uint64_t blocks[] = {32, 256, 4096};
	const double densities[] = {0.01, 0.1, 0.5, 1};
	struct bench bench = {};

	if (argc > 2 || tensor_bytes < 1 << 16) {
		fprintf(stderr, "usage: bench_gpu [bytes of a tensor, at least 65536]\n");
		return 2;
	}
	random_state = UINT64_C(0x9e3779b97f4a7c15);
	allocate(&bench, tensor_bytes);
	yardsticks(&bench);
	print_conditions(&bench);
	for (enum dtype dtype : dtypes)
		for (uint64_t block : blocks)
			for (double density : densities)
				rows_of(&bench, dtype, block, density);
	return 0;
}
