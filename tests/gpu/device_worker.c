// SPDX-License-Identifier: BSD-3-Clause
/*
 * device_worker.c - one worker whose tensors are on a GPU: random operations, checked
 *
 *   device_worker AGGREGATOR RANK WORLD SEED OPERATIONS [JOB]
 *
 * All workers draw the same operations from the seed. Tensors hold small whole numbers, so that
 * every result is exact, and each worker works out by itself what it has to be. A tensor is written by
 * the caller's stream, after a pause, just before the call, and the result is copied away in that
 * stream just after it: nobody waits in between. Prints what it did; exit status 1 and one line
 * when an operation fails or is wrong. Uses CUDA's runtime, whichever it is linked with.
 */

#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/winnow.h"

#define COUNT_MAX (1u << 20)
#define UNDER_WAY 3 /* operations with their own buffers and streams */
#define GUARD 64    /* bytes around a result that must stay as they are */
#define POISON 0xa5

struct spec {
	uint64_t count;
	enum winnow_dtype dtype;
	enum winnow_op op;
	enum winnow_wire wire;
	uint32_t block;
	uint32_t density;                             /* of 256 blocks */
	uint64_t offset;                              /* elements into the buffer: any alignment */
	bool in_place, detached, goes_on, parts, odd; /* odd: infinities and NaNs */
	uint32_t pause_us;
};

/* Buffers for one operation under way. */
struct lane {
	cudaStream_t stream;
	uint8_t *send, *recv; /* on the GPU */
	uint8_t *given, *got; /* pinned */
	uint32_t pause_us;
	struct spec spec;
	struct winnow_request *request; /* NULL: nobody has to wait for it */
	uint32_t number;
	bool busy;
};

static struct winnow_comm *comm;
static uint32_t rank, world;
static uint64_t seed;
static uint64_t staged_out, staged_in;

static const char *job = "device";

static void check(int result, const char *what)
{
	if (result == WINNOW_OK)
		return;
	fprintf(stderr, "device_worker: rank %u: %s: %s: %s\n", rank, what, winnow_strerror(result),
	        winnow_last_error());
	winnow_comm_destroy(comm);
	_exit(1);
}

/* What fails for the library fails here, too, and perhaps first: the others shall hear of it. */
static void check_cuda(cudaError_t err, const char *what)
{
	if (err == cudaSuccess)
		return;
	for (uint32_t i = 0; i < 5000 && comm != NULL; i++, usleep(1000))
		check(winnow_comm_check(comm), what);
	fprintf(stderr, "device_worker: %s: %s\n", what, cudaGetErrorString(err));
	_exit(3);
}

static uint64_t mix(uint64_t value)
{
	value += UINT64_C(0x9e3779b97f4a7c15);
	value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
	return value ^ value >> 31;
}

static uint32_t elem_bytes(enum winnow_dtype dtype)
{
	return dtype == WINNOW_F16 || dtype == WINNOW_BF16  ? 2
	       : dtype == WINNOW_F64 || dtype == WINNOW_I64 ? 8
	                                                    : 4;
}

/* ---- numbers ---- */

/* Element i of a worker's tensor, before it is made to fit its type. */
static double value(const struct spec *spec, uint32_t number, uint32_t worker, uint64_t i)
{
	uint64_t key = mix(seed ^ mix(number * 977 + worker));
	uint64_t block = i / (spec->block != 0 ? spec->block : 256), dice;

	if ((mix(key ^ block) & 255) >= spec->density)
		return (i & 1) != 0 ? 0.0 : -0.0;
	dice = mix(key + 7919 * i);
	if (spec->odd && dice % 1000 == 0)
		return dice & 1024 ? INFINITY : NAN;
	return (double)((int64_t)(dice % 5) - 2);
}

static uint32_t half_of(double x)
{
	float f = (float)x;
	uint32_t bits, sign, magnitude;
	int exponent;

	memcpy(&bits, &f, 4);
	sign = bits >> 16 & 0x8000;
	if (x != x)
		return 0x7e00;
	if (isinf(x))
		return sign | 0x7c00;
	if (x == 0)
		return sign;
	exponent = (int)(bits >> 23 & 255) - 127 + 15;
	magnitude = (uint32_t)exponent << 10 | (bits >> 13 & 0x3ff);
	return sign | magnitude;
}

static double of_half(uint32_t half)
{
	double mantissa = half & 0x3ff;
	int exponent = (int)(half >> 10 & 31);
	double x = exponent == 31  ? (mantissa != 0 ? NAN : INFINITY)
	           : exponent == 0 ? ldexp(mantissa, -24)
	                           : ldexp(1024 + mantissa, exponent - 25);

	return half & 0x8000 ? -x : x;
}

static void put(uint8_t *to, enum winnow_dtype dtype, double x)
{
	float f = (float)x;
	uint32_t bits;
	int32_t i32 = (int32_t)x;
	int64_t i64 = (int64_t)x;

	memcpy(&bits, &f, 4);
	switch (dtype) {
	case WINNOW_F32:
		memcpy(to, &f, 4);
		return;
	case WINNOW_F64:
		memcpy(to, &x, 8);
		return;
	case WINNOW_I32:
		memcpy(to, &i32, 4);
		return;
	case WINNOW_I64:
		memcpy(to, &i64, 8);
		return;
	case WINNOW_F16:
		bits = half_of(x);
		break;
	case WINNOW_BF16:
		bits = x != x ? 0x7fc0 : bits >> 16;
		break;
	}
	to[0] = (uint8_t)bits;
	to[1] = (uint8_t)(bits >> 8);
}

static double get(const uint8_t *from, enum winnow_dtype dtype)
{
	uint32_t bits = from[0] | (uint32_t)from[1] << 8;
	double x = 0;
	float f;
	int32_t i32;
	int64_t i64;

	switch (dtype) {
	case WINNOW_F32:
		memcpy(&f, from, 4);
		return (double)f;
	case WINNOW_F64:
		memcpy(&x, from, 8);
		return x;
	case WINNOW_I32:
		memcpy(&i32, from, 4);
		return (double)i32;
	case WINNOW_I64:
		memcpy(&i64, from, 8);
		return (double)i64;
	case WINNOW_F16:
		return of_half(bits);
	case WINNOW_BF16:
		bits <<= 16;
		memcpy(&f, &bits, 4);
		return (double)f;
	}
	return x;
}

static double fold(enum winnow_op op, double a, double b)
{
	switch (op) {
	case WINNOW_MIN:
		return a != a || b != b ? NAN : a < b ? a : b;
	case WINNOW_MAX:
		return a != a || b != b ? NAN : a > b ? a : b;
	case WINNOW_PROD:
		return a * b;
	default:
		return a + b;
	}
}

static double wanted(const struct spec *spec, uint32_t number, uint64_t i)
{
	double x = value(spec, number, 0, i);
	bool whole = spec->dtype == WINNOW_I32 || spec->dtype == WINNOW_I64;

	for (uint32_t w = 1; w < world; w++)
		x = fold(spec->op, x, value(spec, number, w, i));
	if (spec->op == WINNOW_AVG)
		x = whole ? trunc(x / world) : x / world;
	return x;
}

static bool same(const struct spec *spec, double got, double want)
{
	double slack = spec->op == WINNOW_AVG ? fabs(want) / 100 : 0; /* thirds are rounded */

	if (want != want)
		return got != got;
	return isinf(want) ? got == want : fabs(got - want) <= slack;
}

/* ---- operations ---- */

static struct spec draw(uint32_t number)
{
	static const uint32_t blocks[] = {0, 1, 7, 32, 64, 256, 1000, 5000};
	static const uint64_t counts[] = {0, 1, 3, 100, 4000, 70000, 300001, COUNT_MAX - 64};
	uint64_t a = mix(seed + number), b = mix(a), c = mix(b), d = mix(c);
	struct spec spec = {
		.count = counts[a % 8],
		.dtype = (enum winnow_dtype)(1 + b % 6),
		.op = (enum winnow_op)(1 + (b >> 8) % 5),
		.wire = (b >> 16 & 1) != 0 ? WINNOW_WIRE_FIXED32 : WINNOW_WIRE_NATIVE,
		.block = blocks[c % 8],
		.density = (uint32_t[]){0, 3, 30, 128, 256}[(c >> 8) % 5],
		.offset = (c >> 16) % 4,
		.in_place = (c >> 20 & 1) != 0,
		.detached = (d & 3) == 0,
		.goes_on = (d & 12) == 4,
		.parts = (d & 48) == 16,
		.pause_us = (uint32_t)(d >> 16 & 3) * 700,
	};

	if (spec.count > 8)
		spec.count -= a >> 8 & 7;
	if (spec.block == 1 && spec.count > 70000)
		spec.block = 16;
	spec.odd = spec.dtype <= WINNOW_F64 && (d >> 8 & 7) == 0;
	spec.detached = spec.detached && !spec.goes_on;
	return spec;
}

static void CUDART_CB pause_stream(void *argument)
{
	usleep(*(const uint32_t *)argument);
}

static void lane_open(struct lane *lane)
{
	size_t bytes = COUNT_MAX * 8 + 4 * GUARD;

	check_cuda(cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking),
	           "cudaStreamCreateWithFlags");
	check_cuda(cudaMalloc((void **)&lane->send, bytes), "cudaMalloc");
	check_cuda(cudaMalloc((void **)&lane->recv, bytes), "cudaMalloc");
	check_cuda(cudaHostAlloc((void **)&lane->given, bytes, cudaHostAllocDefault),
	           "cudaHostAlloc");
	check_cuda(cudaHostAlloc((void **)&lane->got, bytes, cudaHostAllocDefault),
	           "cudaHostAlloc");
}

/* Offset of the tensor in its buffer, and the bytes that are copied: with guards around it. */
static size_t tensor_at(const struct spec *spec)
{
	return GUARD + spec->offset * elem_bytes(spec->dtype);
}

static size_t tensor_bytes(const struct spec *spec)
{
	return spec->count * elem_bytes(spec->dtype);
}

static int call(struct lane *lane, const struct winnow_options *options,
                struct winnow_request **request)
{
	const struct spec *spec = &lane->spec;
	uint8_t *send = lane->send + tensor_at(spec);
	uint8_t *recv = spec->in_place ? send : lane->recv + tensor_at(spec);
	struct winnow_segment segments[2] = {
		{.offset = spec->count / 7, .count = spec->count / 3, .row = 48},
		{.offset = spec->count / 2, .count = spec->count / 4, .row = 1000},
	};

	if (spec->count == 0 && (seed & 1) != 0)
		send = recv = NULL;
	if (spec->parts)
		return winnow_allreduce_segments_async(send, recv, spec->count, spec->dtype,
		                                       spec->op, segments, 2, options, comm,
		                                       request);
	if (request == NULL && options->block == 0 && options->wire == WINNOW_WIRE_NATIVE)
		return winnow_allreduce_cuda(send, recv, spec->count, spec->dtype, spec->op, comm,
		                             lane->stream);
	return winnow_allreduce_async(send, recv, spec->count, spec->dtype, spec->op, options, comm,
	                              request);
}

static void collect(struct winnow_request **request)
{
	struct winnow_op_stats stats;

	check(winnow_wait(*request, -1, &stats), "wait");
	winnow_request_free(request);
	staged_out += stats.staged_out_bytes;
	staged_in += stats.staged_in_bytes;
}

static void start(struct lane *lane, uint32_t number)
{
	struct spec *spec = &lane->spec;
	struct winnow_request *request = NULL;
	struct winnow_options options = {.memory = WINNOW_MEMORY_CUDA, .stream = lane->stream};
	size_t bytes;

	*spec = draw(number);
	lane->number = number;
	lane->busy = true;
	bytes = tensor_at(spec) + tensor_bytes(spec) + GUARD;
	options.block = spec->block;
	options.wire = spec->wire;
	options.stream_goes_on = spec->goes_on;
	memset(lane->given, POISON, bytes);
	for (uint64_t i = 0; i < spec->count; i++)
		put(lane->given + tensor_at(spec) + i * elem_bytes(spec->dtype), spec->dtype,
		    value(spec, number, rank, i));
	lane->pause_us = (spec->pause_us * (rank + 1)) % 2000;
	if (lane->pause_us > 0)
		check_cuda(cudaLaunchHostFunc(lane->stream, pause_stream, &lane->pause_us),
		           "cudaLaunchHostFunc");
	check_cuda(cudaMemcpyAsync(lane->send, lane->given, bytes, cudaMemcpyHostToDevice,
	                           lane->stream),
	           "cudaMemcpyAsync");
	check_cuda(cudaMemsetAsync(lane->recv, POISON, bytes, lane->stream), "cudaMemsetAsync");
	check(call(lane, &options, spec->detached ? NULL : &request), "allreduce");
	if (spec->goes_on)
		collect(&request);
	check_cuda(cudaMemcpyAsync(lane->got, spec->in_place ? lane->send : lane->recv, bytes,
	                           cudaMemcpyDeviceToHost, lane->stream),
	           "cudaMemcpyAsync");
	lane->request = request;
}

static void wrong(const struct lane *lane, uint64_t i, double got, double want)
{
	const struct spec *s = &lane->spec;

	fprintf(stderr,
	        "device_worker: rank %u: operation %u, element %" PRIu64
	        " is %g, not %g (count %" PRIu64
	        " type %d op %d wire %d block %u density %u%s%s%s%s%s)\n",
	        rank, lane->number, i, got, want, s->count, s->dtype, s->op, s->wire, s->block,
	        s->density, s->in_place ? " in place" : "", s->detached ? " detached" : "",
	        s->goes_on ? " goes on" : "", s->parts ? " parts" : "", s->odd ? " odd" : "");
	_exit(1);
}

static void finish(struct lane *lane)
{
	const struct spec *spec = &lane->spec;
	size_t at = tensor_at(spec), bytes = tensor_bytes(spec);

	if (!lane->busy)
		return;
	lane->busy = false;
	check_cuda(cudaStreamSynchronize(lane->stream), "cudaStreamSynchronize");
	if (lane->request != NULL)
		collect(&lane->request);
	check(winnow_comm_check(comm), "check");
	for (uint64_t i = 0; i < spec->count; i++) {
		double got = get(lane->got + at + i * elem_bytes(spec->dtype), spec->dtype);
		double want = wanted(spec, lane->number, i);

		if (!same(spec, got, want))
			wrong(lane, i, got, want);
	}
	for (size_t i = 0; i < GUARD; i++) {
		if (lane->got[at - 1 - i] != POISON || lane->got[at + bytes + i] != POISON) {
			fprintf(stderr, "device_worker: rank %u: operation %u wrote beside it\n",
			        rank, lane->number);
			_exit(1);
		}
	}
}

int main(int argc, char **argv)
{
	struct lane lanes[UNDER_WAY] = {0};
	struct winnow_config config;
	uint32_t operations;
	int devices;

	if (argc < 6) {
		fprintf(stderr,
		        "usage: device_worker AGGREGATOR RANK WORLD SEED OPERATIONS [JOB]\n");
		return 2;
	}
	rank = (uint32_t)atoi(argv[2]);
	world = (uint32_t)atoi(argv[3]);
	seed = strtoull(argv[4], NULL, 10);
	operations = (uint32_t)atoi(argv[5]);
	winnow_config_init(&config);
	config.aggregators = argv[1];
	config.rank = rank;
	config.world = world;
	config.job = argc > 6 ? argv[6] : job;
	config.insecure_no_key = 1;
	check(winnow_comm_create(&config, &comm), "join");
	check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
	check_cuda(cudaSetDevice((int)rank % devices), "cudaSetDevice");
	for (uint32_t i = 0; i < UNDER_WAY; i++)
		lane_open(&lanes[i]);
	for (uint32_t i = 0; i < operations; i++) {
		finish(&lanes[i % UNDER_WAY]);
		start(&lanes[i % UNDER_WAY], i);
	}
	for (uint32_t i = 0; i < UNDER_WAY; i++)
		finish(&lanes[i]);
	winnow_comm_destroy(comm);
	printf("rank %u: %u operations right, %" PRIu64 " bytes out and %" PRIu64 " in\n", rank,
	       operations, staged_out, staged_in);
	return 0;
}
