// SPDX-License-Identifier: BSD-3-Clause
/*
 * device_streams.c - one worker whose tensors are on a GPU, in streams that are busy
 *
 * Streams do what a training program's do: tensors are written late in the stream that the operation
 * is given, and read, then overwritten, by what comes next in it; nobody synchronises between. All
 * workers of a job draw the same cases from SEED and each knows everyone's numbers, which are small
 * integers, so that every type's result is exact. The environment says where and who:
 * WINNOW_AGGREGATORS, WINNOW_JOB, RANK, WORLD_SIZE.
 *
 *     device_streams check SEED CASES ELEMENTS LOAD    all results agree: exit status 0
 *     device_streams forever SEED ELEMENTS LOAD        until an operation fails: its line, exit status 3
 *     device_streams capture                           a captured stream is refused
 *     device_streams device                            the GPU's name; exit status 77: there is none
 *
 * LOAD: bytes that a stream is kept busy with before and after each operation.
 */

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/winnow.h"
#define PROGRAM "device_streams"
#include "tests/gpu/device_ends.h"

#define IN_FLIGHT 3
#define PAD_BYTES 512
#define LOAD_ROUNDS 8

enum form { STREAM_WAITS, STREAM_WAITS_NO_REQUEST, STREAM_GOES_ON, FORMS };

struct type {
	const char *name;
	enum winnow_dtype dtype;
	unsigned bytes;
	int mantissa_bits; /* 0: an integer */
	int bias;
};

static const struct type types[] = {
	{"f32", WINNOW_F32, 4, 23, 127},  {"f16", WINNOW_F16, 2, 10, 15},
	{"bf16", WINNOW_BF16, 2, 7, 127}, {"f64", WINNOW_F64, 8, 52, 1023},
	{"i32", WINNOW_I32, 4, 0, 0},     {"i64", WINNOW_I64, 8, 0, 0},
};

static const enum winnow_op ops[] = {WINNOW_SUM, WINNOW_AVG, WINNOW_MIN, WINNOW_MAX, WINNOW_PROD};

struct operation {
	const struct type *type;
	enum winnow_op op;
	enum form form;
	enum winnow_wire wire;
	bool in_place;
	uint32_t block;
	uint64_t count, seed;
	size_t offset; /* bytes, a multiple of the type's */

	cudaStream_t stream;
	size_t region;                 /* bytes: pad, offset, elements, pad */
	uint8_t *send, *recv, *shadow; /* device: regions */
	uint8_t *host;                 /* pinned: two regions, what goes in and what comes out */
	struct winnow_request *request;
};

static struct winnow_comm *comm;
static cudaStream_t other;
static uint8_t *ballast;
static size_t load_bytes;
static uint64_t early; /* calls that came back while the GPU was still at what came before */

static uint64_t roll(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* ---- numbers ---- */

/* One worker's: runs of zeros and of integers, small enough that nothing is ever rounded. */
static void draw_values(const struct operation *o, uint32_t whose, int8_t *values)
{
	uint64_t state = o->seed ^ ((uint64_t)whose + 1) * UINT64_C(0x632be59bd9b4e019);
	uint64_t runs_zero = roll(&state) % 4; /* of four */

	for (uint64_t i = 0; i < o->count;) {
		uint64_t run = 1 + roll(&state) % (3 * (uint64_t)o->block);
		bool zero = roll(&state) % 4 < runs_zero;

		for (; run > 0 && i < o->count; run--, i++) {
			int x = (int)(roll(&state) % 17) - 8;

			if (o->op == WINNOW_PROD)
				x = x < 0 ? -2 : x > 4 ? 2 : 1;
			values[i] = (int8_t)(zero ? 0 : x);
		}
	}
}

static double combine(enum winnow_op op, double a, double b)
{
	switch (op) {
	case WINNOW_MIN:
		return a < b ? a : b;
	case WINNOW_MAX:
		return a > b ? a : b;
	case WINNOW_PROD:
		return a * b;
	case WINNOW_SUM:
	case WINNOW_AVG:
		break;
	}
	return a + b;
}

/* x as the type has it, which holds it exactly. */
static uint64_t encode(const struct type *type, double x)
{
	unsigned sign_bit = type->bytes * 8 - 1;
	uint64_t bits;
	int exponent;
	double fraction;

	if (type->mantissa_bits == 0)
		return (uint64_t)(int64_t)x;
	if (x == 0)
		return 0;
	fraction = frexp(fabs(x), &exponent) * 2 - 1;
	bits = (uint64_t)(exponent - 1 + type->bias) << type->mantissa_bits;
	bits |= (uint64_t)ldexp(fraction, type->mantissa_bits);
	return bits | (uint64_t)(x < 0) << sign_bit;
}

static double decode(const struct type *type, uint64_t bits)
{
	unsigned sign_bit = type->bytes * 8 - 1;
	uint64_t mantissa = bits & ((UINT64_C(1) << type->mantissa_bits) - 1);
	int exponent = (int)((bits & ~(UINT64_C(1) << sign_bit)) >> type->mantissa_bits);
	double x;

	if (type->mantissa_bits == 0)
		return type->bytes == 4 ? (double)(int32_t)bits : (double)(int64_t)bits;
	if (exponent == 0 && mantissa == 0)
		return 0;
	if (exponent == 2 * type->bias + 1)
		return NAN;
	x = ldexp(1 + ldexp((double)mantissa, -type->mantissa_bits), exponent - type->bias);
	return bits >> sign_bit & 1 ? -x : x;
}

static double read_element(const struct operation *o, const uint8_t *region, uint64_t i)
{
	uint64_t bits = 0;

	memcpy(&bits, region + PAD_BYTES + o->offset + i * o->type->bytes, o->type->bytes);
	return decode(o->type, bits);
}

/* ---- one operation ---- */

static struct operation draw_operation(uint64_t *state, uint64_t most)
{
	struct operation o = {0};

	o.type = &types[roll(state) % (sizeof(types) / sizeof(types[0]))];
	o.op = ops[roll(state) % (sizeof(ops) / sizeof(ops[0]))];
	o.form = (enum form)(roll(state) % FORMS);
	o.wire = roll(state) % 2 == 0 ? WINNOW_WIRE_NATIVE : WINNOW_WIRE_FIXED32;
	o.in_place = roll(state) % 2 == 0;
	o.block = UINT32_C(1) << roll(state) % 12;
	if (roll(state) % 3 == 0)
		o.block = 1 + (uint32_t)(roll(state) % 1500);
	o.count = roll(state) % 8 == 0 ? roll(state) % 40 : 1 + roll(state) % most;
	o.seed = roll(state);
	o.offset = roll(state) % 33 * o.type->bytes;
	o.region = (2 * PAD_BYTES + o.offset + o.count * o.type->bytes + 255) / 256 * 256;
	return o;
}

static void keep_busy(cudaStream_t stream)
{
	for (int i = 0; i < LOAD_ROUNDS && load_bytes > 0; i++)
		CUDA(cudaMemsetAsync(ballast, i, load_bytes, stream));
}

static void prepare(struct operation *o)
{
	int8_t *values = malloc(o->count + 1);

	CUDA(cudaMalloc((void **)&o->send, o->region));
	o->recv = o->send;
	if (!o->in_place)
		CUDA(cudaMalloc((void **)&o->recv, o->region));
	CUDA(cudaMalloc((void **)&o->shadow, 2 * o->region));
	CUDA(cudaHostAlloc((void **)&o->host, 3 * o->region, cudaHostAllocDefault));
	if (values == NULL)
		die("malloc", "out of memory");
	CUDA(cudaStreamCreateWithFlags(&o->stream, cudaStreamNonBlocking));
	draw_values(o, rank, values);
	memset(o->host, 0x5c, o->region);
	for (uint64_t i = 0; i < o->count; i++) {
		uint64_t bits = encode(o->type, values[i]);

		memcpy(o->host + PAD_BYTES + o->offset + i * o->type->bytes, &bits, o->type->bytes);
	}
	free(values);
}

static void call(struct operation *o, uint64_t tag)
{
	struct winnow_options options = {
		.tag = tag,
		.block = o->block,
		.wire = o->wire,
		.memory = WINNOW_MEMORY_CUDA,
		.stream_goes_on = o->form == STREAM_GOES_ON,
		.stream = o->stream,
	};
	bool waited_for = o->form != STREAM_WAITS_NO_REQUEST;
	size_t at = PAD_BYTES + o->offset;

	if (winnow_allreduce_async(o->send + at, o->recv + at, o->count, o->type->dtype, o->op,
	                           &options, comm, waited_for ? &o->request : NULL) != WINNOW_OK)
		job_ended("winnow_allreduce_async");
}

/* All that comes after the operation in its stream: read the result, then write over both tensors. */
static void follow(struct operation *o, cudaStream_t stream)
{
	const enum cudaMemcpyKind within = cudaMemcpyDeviceToDevice;

	CUDA(cudaMemcpyAsync(o->shadow, o->recv, o->region, within, stream));
	CUDA(cudaMemcpyAsync(o->shadow + o->region, o->send, o->region, within, stream));
	CUDA(cudaMemsetAsync(o->send, 0x77, o->region, stream));
	CUDA(cudaMemsetAsync(o->recv, 0x77, o->region, stream));
	CUDA(cudaMemcpyAsync(o->host + o->region, o->shadow, 2 * o->region, cudaMemcpyDeviceToHost,
	                     stream));
}

static void start(struct operation *o, uint64_t tag)
{
	keep_busy(o->stream);
	CUDA(cudaMemsetAsync(o->recv, 0x5c, o->region, o->stream));
	CUDA(cudaMemcpyAsync(o->send, o->host, o->region, cudaMemcpyHostToDevice, o->stream));
	call(o, tag);
	if (o->form != STREAM_GOES_ON)
		follow(o, o->stream);
	else
		early += cudaStreamQuery(o->stream) == cudaErrorNotReady;
	keep_busy(o->stream);
}

static void wait_for(struct operation *o)
{
	struct winnow_op_stats stats;

	if (o->request != NULL && winnow_wait(o->request, -1, &stats) != WINNOW_OK)
		job_ended("winnow_wait");
	winnow_request_free(&o->request);
	if (o->form ==
	    STREAM_GOES_ON) /* whoever reads it now finds it, whatever that stream does */
		follow(o, other);
	CUDA(cudaStreamSynchronize(o->form == STREAM_GOES_ON ? other : o->stream));
	CUDA(cudaStreamSynchronize(o->stream));
	if (winnow_comm_check(comm) != WINNOW_OK)
		job_ended("winnow_comm_check");
}

static double expected(const struct operation *o, double sum)
{
	if (o->op != WINNOW_AVG)
		return sum;
	return o->type->mantissa_bits == 0 ? trunc(sum / world) : sum / world;
}

static void wrong(const struct operation *o, uint64_t at, double got, double want)
{
	static const char *const forms[FORMS] = {"the stream waits", "the stream waits, no request",
	                                         "the stream goes on"};

	fprintf(stderr,
	        "device_streams %u: %s, op %d, count %llu, block %u, offset %zu, %s, %s, seed "
	        "%llu: "
	        "element %llu is %g and should be %g\n",
	        rank, o->type->name, o->op, (unsigned long long)o->count, o->block, o->offset,
	        o->in_place ? "in place" : "out of place", forms[o->form],
	        (unsigned long long)o->seed, (unsigned long long)at, got, want);
	exit(1);
}

static void check_result(const struct operation *o)
{
	const uint8_t *out = o->host + o->region, *sent = o->host + 2 * o->region;
	size_t end = PAD_BYTES + o->offset + o->count * o->type->bytes;
	double *want = calloc(o->count + 1, sizeof(*want));
	int8_t *values = malloc(o->count + 1);
	/* Only the average of a number of workers that is no power of two is rounded. */
	double unit = (world & (world - 1)) != 0 ? ldexp(1, -o->type->mantissa_bits) : 0;

	if (want == NULL || values == NULL)
		die("malloc", "out of memory");
	for (uint32_t whose = 0; whose < world; whose++) {
		draw_values(o, whose, values);
		for (uint64_t i = 0; i < o->count; i++)
			want[i] = whose == 0 ? values[i] : combine(o->op, want[i], values[i]);
	}
	for (uint64_t i = 0; i < o->count; i++) {
		double got = read_element(o, out, i), right = expected(o, want[i]);

		if (!(fabs(got - right) <= unit * fabs(right)))
			wrong(o, i, got, right);
	}
	for (size_t i = 0; i < o->region; i++)
		if ((i < PAD_BYTES + o->offset || i >= end) && out[i] != 0x5c)
			die("something was written beside the tensor", o->type->name);
	if (!o->in_place && memcmp(sent, o->host, o->region) != 0)
		die("the input of an operation was written to", o->type->name);
	free(want);
	free(values);
}

static void release(struct operation *o)
{
	CUDA(cudaStreamDestroy(o->stream));
	if (!o->in_place)
		CUDA(cudaFree(o->recv));
	CUDA(cudaFree(o->send));
	CUDA(cudaFree(o->shadow));
	CUDA(cudaFreeHost(o->host));
}

/* IN_FLIGHT at a time, each in a stream of its own. While streams wait no memory comes or goes. */
static void run_some(uint64_t *state, uint64_t most, uint64_t *tag)
{
	struct operation some[IN_FLIGHT];

	for (int i = 0; i < IN_FLIGHT; i++)
		some[i] = draw_operation(state, most);
	for (int i = 0; i < IN_FLIGHT; i++)
		prepare(&some[i]);
	for (int i = 0; i < IN_FLIGHT; i++)
		start(&some[i], ++*tag);
	for (int i = 0; i < IN_FLIGHT; i++)
		wait_for(&some[i]);
	for (int i = 0; i < IN_FLIGHT; i++) {
		check_result(&some[i]);
		release(&some[i]);
	}
}

/* ---- modes ---- */

static void check(uint64_t seed, uint64_t cases, uint64_t most)
{
	uint64_t state = seed, tag = 0;

	for (uint64_t i = 0; i < cases; i += IN_FLIGHT)
		run_some(&state, most, &tag);
	if (early == 0 && load_bytes > 0 && getenv("CUDA_DEVICE_MAX_CONNECTIONS") == NULL)
		die("every call", "waited for what was in its stream");
	printf("%llu operations agree; %llu calls came back while the stream was still busy\n",
	       (unsigned long long)tag, (unsigned long long)early);
}

static void forever(uint64_t seed, uint64_t most)
{
	uint64_t state = seed, tag = 0;

	for (;;) {
		run_some(&state, most, &tag);
		if (tag == IN_FLIGHT) {
			printf("running\n");
			fflush(stdout);
		}
	}
}

static void capture(void)
{
	struct operation o = {
		.type = &types[0], .op = WINNOW_SUM, .block = 256, .count = 1000, .seed = 1};
	struct winnow_options options = {.memory = WINNOW_MEMORY_CUDA};
	cudaGraph_t graph;
	int code;

	o.region = (2 * PAD_BYTES + 4 * o.count + 255) / 256 * 256;
	prepare(&o);
	options.stream = o.stream;
	CUDA(cudaStreamBeginCapture(o.stream, cudaStreamCaptureModeThreadLocal));
	code = winnow_allreduce_async(o.send + PAD_BYTES, o.recv + PAD_BYTES, o.count, WINNOW_F32,
	                              o.op, &options, comm, NULL);
	if (code != WINNOW_ERR_INVALID)
		die("an operation in a captured stream",
		    code == WINNOW_OK ? "taken" : winnow_last_error());
	if (strstr(winnow_last_error(), "captur") == NULL)
		die("the refusal of a captured stream", winnow_last_error());
	printf("refused: %s\n", winnow_last_error());
	CUDA(cudaStreamEndCapture(o.stream, &graph));
	CUDA(cudaGraphDestroy(graph));
	/* The stream, the library and the GPU are as good as before. */
	start(&o, 1);
	wait_for(&o);
	check_result(&o);
	release(&o);
}

static int device(void)
{
	struct cudaDeviceProp properties;
	int count = 0;
	cudaError_t error = cudaGetDeviceCount(&count);

	if (error == cudaSuccess && count > 0)
		error = cudaGetDeviceProperties(&properties, 0);
	if (error != cudaSuccess || count == 0) {
		fprintf(stderr, "there is no GPU here: %s\n", cudaGetErrorString(error));
		return 77;
	}
	printf("%s\n", properties.name);
	return 0;
}

static uint64_t number(char **argv, int at)
{
	char *end;
	uint64_t value = argv[at] != NULL ? strtoull(argv[at], &end, 10) : 0;

	if (argv[at] == NULL || *end != '\0') {
		fprintf(stderr, "device_streams: see the head of tests/gpu/device_streams.c\n");
		exit(2);
	}
	return value;
}

static void join(void)
{
	comm = join_job();
	CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
	if (load_bytes > 0)
		CUDA(cudaMalloc((void **)&ballast, load_bytes));
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";

	if (strcmp(mode, "check") == 0 && argc == 6) {
		load_bytes = number(argv, 5);
		join();
		check(number(argv, 2), number(argv, 3), number(argv, 4));
	} else if (strcmp(mode, "forever") == 0 && argc == 5) {
		load_bytes = number(argv, 4);
		join();
		forever(number(argv, 2), number(argv, 3));
	} else if (strcmp(mode, "capture") == 0) {
		join();
		capture();
	} else if (strcmp(mode, "device") == 0) {
		return device();
	} else {
		number((char *[]){NULL}, 0);
	}
	winnow_comm_destroy(comm);
	CUDA(cudaStreamDestroy(other));
	CUDA(cudaFree(ballast));
	return 0;
}
