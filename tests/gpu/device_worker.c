// SPDX-License-Identifier: BSD-3-Clause
/*
 * device_worker.c - a process whose tensors are on GPUs: random operations, checked
 *
 *   device_worker NAME=VALUE..
 *     aggregators= job=   else as in the environment: WINNOW_AGGREGATORS and so on
 *     rank=0 world=1
 *     gpus=0       > 0: the rank is a node with this many GPUs, reduced by NCCL
 *     local=all    the node's GPU that this process has (as its GPU 0), or all; with a number also
 *                  id=FILE, which the process with local=0 writes and the others wait for
 *     seed=1 ops=20 lanes=3   operations, and how many at a time; ops=0: until one fails
 *     most=65536   largest number of elements in a tensor
 *     load=0       bytes of other work in a stream before each operation
 *     density=0.1 count= block=   only f32 sums of `count`, with this share of blocks on each GPU
 *     describe=1   only print one line about the GPUs here
 *
 * All processes draw the same operations from the seed. Tensors hold small whole numbers, so that
 * every result is exact, and each process computes the expected result itself. A tensor is written
 * late in the operation's stream. When the request is done the result is read in an unrelated
 * stream, or in the operation's after winnow_stream_wait(), and then both tensors are overwritten.
 * Prints totals as JSON. Exit status 1: an operation failed, with the reason; 3: a CUDA call
 * failed; 4: a result is wrong; 77: there is no GPU here.
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

#define GPUS_MAX 16
#define LANES_MAX 40
#define GUARD 64 /* bytes around a tensor that must stay as they are */
#define POISON 0xa5
#define LOAD_ROUNDS 8

static struct {
	const char *id;
	uint64_t local, seed, ops, lanes, most, load, count, block, describe, rank, world, gpus;
	double density; /* < 0: operations are drawn */
} args;

/* Where the result is read. */
enum reading { READ_ELSEWHERE, READ_AFTER_EVENT, READ_NO_REQUEST, READINGS };

struct spec {
	uint64_t number, count, offset; /* elements into the buffer: any alignment */
	enum winnow_dtype dtype;
	enum winnow_op op;
	enum winnow_wire wire;
	enum reading reading;
	uint32_t block, pause_us;
	double density;
	bool in_place, rows, odd; /* odd: infinities and NaNs */
	struct winnow_segment segments[2];
};

/* One operation under way, on the GPUs of this process. */
struct lane {
	struct spec spec;
	struct winnow_request *request;
	cudaStream_t streams[GPUS_MAX];
	uint8_t *send[GPUS_MAX], *recv[GPUS_MAX], *ballast[GPUS_MAX]; /* on the GPU */
	uint8_t *given[GPUS_MAX], *got[GPUS_MAX], *kept[GPUS_MAX];    /* pinned; kept: of send */
	bool busy;
};

static struct winnow_config config;
static struct winnow_comm *comm;
static struct winnow_node *node;
static struct lane lanes[LANES_MAX];
static cudaStream_t others[GPUS_MAX];
static uint32_t mine; /* GPUs of this process */
static uint64_t early, blocks, nonzero, united;

static void check(int result, const char *what)
{
	if (result == WINNOW_OK)
		return;
	fprintf(stderr, "device_worker: rank %" PRIu64 ": %s: %s: %s\n", args.rank, what,
	        winnow_strerror(result), winnow_last_error());
	winnow_comm_destroy(comm);
	winnow_node_destroy(node);
	_exit(1);
}

/* What fails for the library fails here, too, and perhaps first: the others shall hear of it. */
static void cuda(cudaError_t err, const char *what)
{
	if (err == cudaSuccess)
		return;
	for (int i = 0; i < 500 && (comm != NULL || node != NULL); i++, usleep(10000))
		check(comm != NULL ? winnow_comm_check(comm) : winnow_node_check(node), what);
	fprintf(stderr, "device_worker: rank %" PRIu64 ": %s: %s\n", args.rank, what,
	        cudaGetErrorString(err));
	_exit(3);
}

#define CUDA(call, arguments) cuda(call arguments, #call)

static _Noreturn void wrong(const struct spec *s, const char *what, uint64_t at, double got,
                            double want)
{
	fprintf(stderr,
	        "device_worker: rank %" PRIu64 ": operation %" PRIu64 ": %s %" PRIu64
	        " is %g, not %g (seed %" PRIu64 " count %" PRIu64 " type %d op %d wire %d block %u "
	        "density %g offset %" PRIu64 "%s%s%s, read %d)\n",
	        args.rank, s->number, what, at, got, want, args.seed, s->count, s->dtype, s->op,
	        s->wire, s->block, s->density, s->offset, s->in_place ? ", in place" : "",
	        s->rows ? ", rows" : "", s->odd ? ", odd" : "", s->reading);
	_exit(4);
}

/* ---- numbers ---- */

static uint64_t mix(uint64_t value)
{
	value += UINT64_C(0x9e3779b97f4a7c15);
	value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
	return value ^ value >> 31;
}

/* Of one GPU's tensor: -2 .. 2 where the block is one of its own, else a zero of either sign. */
static double element(const struct spec *spec, uint64_t gpu, uint64_t i)
{
	uint64_t key = mix(args.seed ^ mix(spec->number * 977 + gpu)), dice;

	if ((double)(mix(key ^ i / spec->block) >> 11) * 0x1p-53 >= spec->density)
		return (i & 1) != 0 ? 0.0 : -0.0;
	dice = mix(key + 7919 * i);
	if (spec->odd && dice % 1000 == 0)
		return dice & 1024 ? (double)INFINITY : (double)NAN;
	return (double)((int64_t)(dice % 5) - 2);
}

static double expected(const struct spec *spec, uint64_t i)
{
	uint64_t gpus = args.world * (args.gpus > 0 ? args.gpus : 1);
	double x = element(spec, 0, i);

	for (uint64_t gpu = 1; gpu < gpus; gpu++) {
		double y = element(spec, gpu, i);

		if (spec->op == WINNOW_PROD)
			x *= y;
		else if (spec->op == WINNOW_MIN || spec->op == WINNOW_MAX)
			x = x != x || y != y                      ? (double)NAN
			    : (x < y) == (spec->op == WINNOW_MIN) ? x
			                                          : y;
		else
			x += y;
	}
	if (spec->op != WINNOW_AVG)
		return x;
	return spec->dtype >= WINNOW_I32 ? trunc(x / (double)gpus) : x / (double)gpus;
}

static const uint32_t elem_bytes[] = {
	[WINNOW_F32] = 4, [WINNOW_F16] = 2, [WINNOW_BF16] = 2,
	[WINNOW_F64] = 8, [WINNOW_I32] = 4, [WINNOW_I64] = 8,
};

__extension__ typedef _Float16 half;

/* An element of any type, from its first byte on. */
union element {
	half f16;
	float f32;
	uint16_t bf16[2]; /* its upper half is one */
	double f64;
	int32_t i32;
	int64_t i64;
};

static void put(uint8_t *to, enum winnow_dtype dtype, double x)
{
	union element e = {.f32 = (float)x};

	if (dtype == WINNOW_F16)
		e.f16 = (half)x;
	else if (dtype == WINNOW_BF16)
		e.bf16[0] = e.bf16[1];
	else if (dtype == WINNOW_F64)
		e.f64 = x;
	else if (dtype == WINNOW_I32)
		e.i32 = (int32_t)x;
	else if (dtype == WINNOW_I64)
		e.i64 = (int64_t)x;
	memcpy(to, &e, elem_bytes[dtype]);
}

static double get(const uint8_t *from, enum winnow_dtype dtype)
{
	union element e = {0};

	memcpy(dtype == WINNOW_BF16 ? (void *)&e.bf16[1] : (void *)&e, from, elem_bytes[dtype]);
	return dtype == WINNOW_F16   ? (double)e.f16
	       : dtype == WINNOW_F64 ? e.f64
	       : dtype == WINNOW_I32 ? (double)e.i32
	       : dtype == WINNOW_I64 ? (double)e.i64
	                             : (double)e.f32;
}

/* ---- operations ---- */

static void draw_rows(struct spec *spec, uint64_t random)
{
	uint64_t half_way = spec->count / 2, row = random % 300;

	spec->segments[0].offset = mix(random + 1) % (half_way + 1);
	spec->segments[0].count = mix(random + 2) % (half_way - spec->segments[0].offset + 1);
	spec->segments[1].offset = half_way + mix(random + 3) % (spec->count - half_way + 1);
	spec->segments[1].count = mix(random + 4) % (spec->count - spec->segments[1].offset + 1);
	spec->segments[0].row = (uint32_t)row;
	spec->segments[1].row = (uint32_t)mix(row) % 2000;
}

static struct spec draw(uint64_t number)
{
	static const double densities[] = {0, 0.01, 0.1, 0.5, 1};
	struct spec spec = {.number = number, .count = args.count, .density = args.density};
	uint64_t a = mix(args.seed * 1000003 + number), b = mix(a), c = mix(b);

	spec.block = (uint32_t)args.block;
	spec.dtype = WINNOW_F32;
	spec.op = WINNOW_SUM;
	if (args.density >= 0)
		return spec;
	spec.count = mix(a + 1) % (args.most + 1) >> (a % 3 == 0 ? a / 3 % 16 : 0);
	spec.offset = a >> 16 & 31;
	spec.dtype = (enum winnow_dtype)(1 + b % 6);
	spec.op = (enum winnow_op)(1 + (b >> 8) % 5);
	spec.wire = (b >> 16 & 1) != 0 ? WINNOW_WIRE_FIXED32 : WINNOW_WIRE_NATIVE;
	spec.reading = (enum reading)((b >> 20) % READINGS);
	spec.block = (b >> 24 & 1) != 0 ? 1u << (b >> 25) % 12 : 1 + (uint32_t)(b >> 32) % 1500;
	spec.density = densities[c % 5];
	spec.in_place = c >> 8 & 1;
	spec.rows = (c >> 9 & 3) == 0;
	spec.pause_us = (uint32_t)(c >> 16 & 3) * 700;
	/* A node refuses averages of integers, and NCCL decides the results of NaNs. */
	spec.odd = args.gpus == 0 && spec.dtype <= WINNOW_F64 && (c >> 24 & 7) == 0;
	if (args.gpus > 0 && spec.op == WINNOW_AVG && spec.dtype >= WINNOW_I32)
		spec.op = WINNOW_SUM;
	if (spec.rows)
		draw_rows(&spec, c);
	if (spec.block == 1 && spec.count > 70000)
		spec.block = 16;
	return spec;
}

/* The tensor in its buffer, and the bytes that are copied: with guards around it. */
static size_t tensor_at(const struct spec *spec)
{
	return GUARD + spec->offset * elem_bytes[spec->dtype];
}

static size_t region_bytes(const struct spec *spec)
{
	return tensor_at(spec) + spec->count * elem_bytes[spec->dtype] + GUARD;
}

static uint64_t gpu_of(uint32_t index)
{
	return args.gpus == 0 ? args.rank : args.rank * args.gpus + args.local + index;
}

static void use(uint32_t index)
{
	int count = 1;

	if (args.gpus == 0)
		CUDA(cudaGetDeviceCount, (&count));
	CUDA(cudaSetDevice, (args.gpus == 0 ? (int)args.rank % count : (int)index));
}

static void CUDART_CB pause_stream(void *argument)
{
	usleep(((const struct spec *)argument)->pause_us);
}

/* The tensor comes late in its stream. */
static void prepare(struct lane *lane, uint32_t index)
{
	struct spec *spec = &lane->spec;
	uint8_t *given = lane->given[index];
	cudaStream_t stream = lane->streams[index];

	memset(given, POISON, region_bytes(spec));
	for (uint64_t i = 0; i < spec->count; i++)
		put(given + tensor_at(spec) + i * elem_bytes[spec->dtype], spec->dtype,
		    element(spec, gpu_of(index), i));
	for (int i = 0; i < LOAD_ROUNDS && args.load > 0; i++)
		CUDA(cudaMemsetAsync, (lane->ballast[index], i, args.load, stream));
	if (spec->pause_us > 0)
		CUDA(cudaLaunchHostFunc, (stream, pause_stream, spec));
	CUDA(cudaMemsetAsync, (lane->recv[index], POISON, region_bytes(spec), stream));
	CUDA(cudaMemcpyAsync, (spec->in_place ? lane->recv[index] : lane->send[index], given,
	                       region_bytes(spec), cudaMemcpyHostToDevice, stream));
}

static int call(struct lane *lane)
{
	const struct spec *spec = &lane->spec;
	struct winnow_options options = {.block = spec->block,
	                                 .wire = spec->wire,
	                                 .memory = WINNOW_MEMORY_CUDA,
	                                 .tag = spec->number % 7 == 3 ? spec->number + 1 : 0,
	                                 .stream = lane->streams[0]};
	const void *send[GPUS_MAX];
	void *recv[GPUS_MAX];
	void *const *streams = (void *const *)lane->streams;

	for (uint32_t i = 0; i < mine; i++) {
		recv[i] = lane->recv[i] + tensor_at(spec);
		send[i] = spec->in_place ? recv[i] : lane->send[i] + tensor_at(spec);
		if (spec->count == 0 && spec->in_place)
			send[i] = recv[i] = NULL;
	}
	if (spec->reading == READ_NO_REQUEST && !spec->rows)
		return node != NULL
		               ? winnow_node_allreduce(send, recv, spec->count, spec->dtype,
		                                       spec->op, streams, node)
		               : winnow_allreduce_cuda(send[0], recv[0], spec->count, spec->dtype,
		                                       spec->op, comm, streams[0], NULL);
	if (node != NULL)
		return winnow_node_allreduce_async(send, recv, spec->count, spec->dtype, spec->op,
		                                   spec->segments, spec->rows ? 2 : 0, streams,
		                                   &options, node, &lane->request);
	return winnow_allreduce_segments_async(send[0], recv[0], spec->count, spec->dtype, spec->op,
	                                       spec->segments, spec->rows ? 2 : 0, &options, comm,
	                                       &lane->request);
}

static void begin(struct lane *lane, uint64_t number)
{
	lane->spec = draw(number);
	lane->busy = true;
	for (uint32_t i = 0; i < mine; i++) {
		use(i);
		prepare(lane, i);
	}
	check(call(lane), "allreduce");
	early += cudaStreamQuery(lane->streams[mine - 1]) == cudaErrorNotReady;
}

static void wait_for(struct lane *lane)
{
	struct winnow_op_stats stats = {0};

	if (lane->request != NULL)
		check(winnow_wait(lane->request, -1, &stats), "wait");
	if (lane->request != NULL && node == NULL && lane->spec.reading == READ_AFTER_EVENT)
		check(winnow_stream_wait(lane->request, lane->streams[0]), "winnow_stream_wait");
	winnow_request_free(&lane->request);
	blocks += stats.blocks;
	nonzero += stats.blocks_nonzero;
	united += stats.blocks_union;
}

static void read_back(struct lane *lane, uint32_t index)
{
	const struct spec *spec = &lane->spec;
	/* An operation of nothing waits for nothing, so it says nothing of what is around it. */
	bool in_order = spec->reading == READ_AFTER_EVENT || spec->count == 0;
	cudaStream_t stream = in_order ? lane->streams[index] : others[index];
	size_t bytes = region_bytes(spec);

	CUDA(cudaMemcpyAsync,
	     (lane->got[index], lane->recv[index], bytes, cudaMemcpyDeviceToHost, stream));
	CUDA(cudaMemcpyAsync,
	     (lane->kept[index], lane->send[index], bytes, cudaMemcpyDeviceToHost, stream));
	CUDA(cudaMemsetAsync, (lane->send[index], 0x77, bytes, stream));
	CUDA(cudaMemsetAsync, (lane->recv[index], 0x77, bytes, stream));
	CUDA(cudaStreamSynchronize, (stream));
}

static void compare(const struct lane *lane, uint32_t index)
{
	const struct spec *spec = &lane->spec;
	size_t at = tensor_at(spec), bytes = region_bytes(spec) - at - GUARD;
	const uint8_t *got = lane->got[index];
	/* Of averages only: five thirds are not whole. */
	double slack = spec->op != WINNOW_AVG ? 0 : elem_bytes[spec->dtype] == 2 ? 0.02 : 1e-6;

	for (uint64_t i = 0; i < spec->count; i++) {
		double x = get(got + at + i * elem_bytes[spec->dtype], spec->dtype);
		double want = expected(spec, i);

		if (x != want && !(x != x && want != want) && !(fabs(x - want) <= slack))
			wrong(spec, "element", i, x, want);
	}
	for (size_t i = 0; i < GUARD; i++)
		if (got[at - 1 - i] != POISON || got[at + bytes + i] != POISON)
			wrong(spec, "byte beside it", i, got[at + bytes + i], POISON);
	for (size_t i = 0; i < bytes && !spec->in_place; i++)
		if (lane->kept[index][at + i] != lane->given[index][at + i])
			wrong(spec, "input byte", i, lane->kept[index][at + i],
			      lane->given[index][at + i]);
}

static void end(struct lane *lane)
{
	if (!lane->busy)
		return;
	lane->busy = false;
	wait_for(lane);
	for (uint32_t i = 0; i < mine; i++) {
		use(i);
		read_back(lane, i);
		compare(lane, i);
	}
	check(comm != NULL ? winnow_comm_check(comm) : winnow_node_check(node), "check");
}

static void operate(void)
{
	for (uint64_t i = 0; i < args.ops || args.ops == 0; i++) {
		end(&lanes[i % args.lanes]);
		begin(&lanes[i % args.lanes], i);
		if (i == args.lanes) {
			printf("running\n");
			fflush(stdout);
		}
	}
	for (uint64_t i = 0; i < args.lanes; i++)
		end(&lanes[(args.ops + i) % args.lanes]);
	if (args.load > 0 && early == 0)
		check(WINNOW_ERR_INVALID, "every call waits for what is in its stream");
}

/* ---- life ---- */

/* What follows NAME=, and the argument is gone. */
static const char *text(char **argv, const char *name, const char *otherwise)
{
	size_t length = strlen(name);

	for (; *argv != NULL; argv++)
		if (strncmp(*argv, name, length) == 0 && (*argv)[length] == '=') {
			otherwise = *argv + length + 1;
			*argv += strlen(*argv);
		}
	return otherwise;
}

static uint64_t number(char **argv, const char *name, const char *otherwise)
{
	return strtoull(text(argv, name, otherwise), NULL, 10);
}

static void parse(char **argv)
{
	const char *local = text(argv, "local", "all");

	args.local = strtoull(local, NULL, 10); /* 0 of all */
	winnow_config_init(&config);
	config.aggregators = text(argv, "aggregators", config.aggregators);
	config.job = text(argv, "job", config.job);
	args.id = text(argv, "id", NULL);
	args.rank = number(argv, "rank", "0");
	args.world = number(argv, "world", "1");
	args.gpus = number(argv, "gpus", "0");
	args.seed = number(argv, "seed", "1");
	args.ops = number(argv, "ops", "20");
	args.lanes = number(argv, "lanes", "3");
	args.most = number(argv, "most", "65536");
	args.load = number(argv, "load", "0");
	args.count = number(argv, "count", "0");
	args.block = number(argv, "block", "0");
	args.describe = number(argv, "describe", "0");
	args.density = strtod(text(argv, "density", "-1"), NULL);
	for (; *argv != NULL; argv++)
		if (**argv != '\0') {
			fprintf(stderr, "device_worker: what is %s?\n", *argv);
			exit(2);
		}
	args.lanes = args.lanes < LANES_MAX ? args.lanes : LANES_MAX;
	mine = args.gpus > 0 && strcmp(local, "all") == 0 ? (uint32_t)args.gpus : 1;
}

static void open_lanes(void)
{
	size_t bytes = (args.density >= 0 ? args.count : args.most) * 8 + 6 * GUARD;

	for (uint32_t i = 0; i < mine; i++) {
		use(i);
		CUDA(cudaStreamCreateWithFlags, (&others[i], cudaStreamNonBlocking));
		for (uint64_t l = 0; l < args.lanes; l++) {
			struct lane *lane = &lanes[l];

			CUDA(cudaStreamCreateWithFlags, (&lane->streams[i], cudaStreamNonBlocking));
			CUDA(cudaMalloc, ((void **)&lane->send[i], bytes));
			CUDA(cudaMalloc, ((void **)&lane->recv[i], bytes));
			if (args.load > 0)
				CUDA(cudaMalloc, ((void **)&lane->ballast[i], args.load));
			CUDA(cudaHostAlloc, ((void **)&lane->given[i], bytes, 0));
			CUDA(cudaHostAlloc, ((void **)&lane->got[i], bytes, 0));
			CUDA(cudaHostAlloc, ((void **)&lane->kept[i], bytes, 0));
		}
	}
}

/* Made by one process, read by the others of the node. */
static void exchange_id(struct winnow_node_id *id)
{
	bool makes = args.local == 0 || args.id == NULL;
	size_t done = args.id == NULL;

	if (makes)
		check(winnow_node_id_make(id), "winnow_node_id_make");
	for (; done == 0; usleep(5000)) {
		FILE *file = fopen(args.id, makes ? "w" : "r");

		if (file == NULL)
			continue;
		if (makes)
			done = fwrite(id, sizeof(*id), 1, file);
		else
			done = fread(id, sizeof(*id), 1, file);
		fclose(file);
	}
}

static void join(void)
{
	int gpus[GPUS_MAX] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
	struct winnow_node_config node_config = {.config = &config,
	                                         .local_rank = (uint32_t)args.local,
	                                         .local_world = (uint32_t)args.gpus,
	                                         .gpu_count = mine,
	                                         .gpus = gpus};

	config.rank = (uint32_t)args.rank;
	config.world = (uint32_t)args.world;
	config.insecure_no_key = 1;
	if (args.gpus == 0) {
		check(winnow_comm_create(&config, &comm), "join");
		return;
	}
	exchange_id(&node_config.id);
	check(winnow_node_create(&node_config, &node), "join");
}

int main(int argc, char **argv)
{
	struct winnow_stats stats;
	int devices = 0, driver = 0;

	(void)argc;
	parse(argv + 1);
	if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
		fprintf(stderr, "there is no GPU here\n");
		return 77;
	}
	if (args.describe) {
		CUDA(cudaDriverGetVersion, (&driver));
		printf("GPUs: %d; a driver for CUDA %d.%d\n", devices, driver / 1000,
		       driver % 1000 / 10);
		return 0;
	}
	join();
	open_lanes();
	operate();
	if (node != NULL)
		winnow_node_stats(node, &stats);
	else
		winnow_comm_stats(comm, &stats);
	printf("{\"ops\": %" PRIu64 ", \"sent_bytes\": %" PRIu64 ", \"received_bytes\": %" PRIu64
	       ", \"blocks\": %" PRIu64 ", \"nonzero\": %" PRIu64 ", \"union\": %" PRIu64 "}\n",
	       args.ops, stats.sent_bytes, stats.received_bytes, blocks, nonzero, united);
	winnow_comm_destroy(comm);
	winnow_node_destroy(node);
	return 0;
}
