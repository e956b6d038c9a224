// SPDX-License-Identifier: BSD-3-Clause
/*
 * device_node.c - a process of a node with several GPUs: operations on all of them, checked
 *
 *   device_node aggregators=HOST:PORT job=NAME node=0 nodes=2 gpus=4 local=all|0.. id=FILE
 *               seed=1 ops=50 [lanes=3] [density=0.1 count=1000000 block=256]
 *
 * local=all: this process has all GPUs of its node; local=2: that one, as emulated GPU 0. The process
 * with the first GPU writes FILE, the others wait for it. All processes draw the same operations
 * from the seed; with a density, all are f32 sums of `count`, of which each GPU has that share
 * of blocks. Tensors hold small whole numbers: every result is exact, and worked out by each
 * process itself. They are written and read in the callers' streams; nobody waits in between.
 * Prints totals as one line of JSON. Exit status 1: an operation failed; 4: a result is wrong.
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
#define COUNT_MAX (1u << 16) /* of drawn operations */
#define LANES_MAX 40         /* operations under way */

static struct {
	const char *aggregators, *job, *id;
	uint32_t node, nodes, gpus, local, ops, lanes, count, block;
	bool all;
	uint64_t seed;
	double density; /* < 0: operations are drawn */
} args = {.job = "nodes",
          .nodes = 1,
          .gpus = 1,
          .all = true,
          .seed = 1,
          .ops = 20,
          .lanes = 3,
          .density = -1};

struct spec {
	uint64_t count;
	enum winnow_dtype dtype;
	enum winnow_op op;
	uint32_t block;
	double density;
	bool in_place, detached, goes_on, has_rows;
	struct winnow_segment table; /* has_rows */
	uint32_t number;
};

struct lane {
	struct spec spec;
	struct winnow_node_request *request;
	cudaStream_t streams[GPUS_MAX];
	void *send[GPUS_MAX], *recv[GPUS_MAX];
	unsigned char *given[GPUS_MAX], *got[GPUS_MAX]; /* pinned */
	bool busy;
};

static struct winnow_node *node;
static struct lane lanes[LANES_MAX];
static uint32_t mine; /* GPUs of this process */
static uint64_t blocks, blocks_nonzero, blocks_union, staged_bytes;

static void check(int result, const char *what)
{
	if (result == WINNOW_OK)
		return;
	fprintf(stderr, "device_node: %s: %s: %s\n", what, winnow_strerror(result),
	        winnow_last_error());
	winnow_node_destroy(node);
	_exit(1);
}

/* A GPU that has failed fails us, too, perhaps before the library has seen it. */
static void check_cuda(cudaError_t err, const char *what)
{
	if (err == cudaSuccess)
		return;
	for (int i = 0; i < 300 && node != NULL; i++) {
		check(winnow_node_check(node), "check");
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	fprintf(stderr, "device_node: %s: %s\n", what, cudaGetErrorString(err));
	_exit(3);
}

/* ---- what tensors hold ---- */

static uint64_t mix(uint64_t value)
{
	value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
	return value ^ value >> 31;
}

static uint64_t draw(uint64_t a, uint64_t b, uint64_t c)
{
	return mix(mix(mix(args.seed * 1000003 + a) + b) + c);
}

/* -2 .. 2 where the block is one of this GPU's, else 0. */
static int element(const struct spec *spec, uint32_t gpu, uint64_t i)
{
	uint64_t chance = draw(spec->number, gpu * UINT64_C(7919) + 1, i / spec->block);

	if ((double)(chance >> 11) * 0x1p-53 >= spec->density)
		return 0;
	return (int)((chance % 97 + i * 7 + i / 5) % 5) - 2;
}

static double expected(const struct spec *spec, uint64_t i)
{
	uint32_t world = args.nodes * args.gpus;
	double result = element(spec, 0, i);

	for (uint32_t gpu = 1; gpu < world; gpu++) {
		double next = element(spec, gpu, i);

		if (spec->op == WINNOW_PROD)
			result *= next;
		else if (spec->op == WINNOW_MIN)
			result = fmin(result, next);
		else if (spec->op == WINNOW_MAX)
			result = fmax(result, next);
		else
			result += next;
	}
	return spec->op == WINNOW_AVG ? result / world : result;
}

static uint32_t elem_bytes(enum winnow_dtype dtype)
{
	if (dtype == WINNOW_F16 || dtype == WINNOW_BF16)
		return 2;
	return dtype == WINNOW_F64 || dtype == WINNOW_I64 ? 8 : 4;
}

static void put(enum winnow_dtype dtype, void *data, uint64_t i, int value)
{
	static const uint16_t f16[] = {0xc000, 0xbc00, 0, 0x3c00, 0x4000}; /* -2 .. 2 */
	float single = (float)value;
	uint32_t bits;

	memcpy(&bits, &single, sizeof(bits));
	if (dtype == WINNOW_F32)
		((float *)data)[i] = single;
	else if (dtype == WINNOW_F16)
		((uint16_t *)data)[i] = f16[value + 2];
	else if (dtype == WINNOW_BF16)
		((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
	else if (dtype == WINNOW_F64)
		((double *)data)[i] = value;
	else if (dtype == WINNOW_I32)
		((int32_t *)data)[i] = value;
	else
		((int64_t *)data)[i] = value;
}

static double get(enum winnow_dtype dtype, const void *data, uint64_t i)
{
	uint32_t half = ((const uint16_t *)data)[i], wide = half << 16;
	float single;

	if (dtype == WINNOW_F32)
		return (double)((const float *)data)[i];
	if (dtype == WINNOW_F64)
		return ((const double *)data)[i];
	if (dtype == WINNOW_I32)
		return (double)((const int32_t *)data)[i];
	if (dtype == WINNOW_I64)
		return (double)((const int64_t *)data)[i];
	if (dtype == WINNOW_F16) {
		double fraction = (half & 1023) / 1024.0;
		int exponent = (int)(half >> 10 & 31);
		double value =
			exponent == 0 ? ldexp(fraction, -14) : ldexp(1 + fraction, exponent - 15);

		return half >> 15 ? -value : value;
	}
	memcpy(&single, &wide, sizeof(single));
	return (double)single;
}

/* ---- operations ---- */

static struct spec spec_of(uint32_t number)
{
	static const double densities[] = {0, 0.02, 0.2, 1};
	struct spec spec = {.number = number};
	uint64_t random = draw(number, 0, 0);

	if (args.density >= 0) {
		spec.count = args.count;
		spec.dtype = WINNOW_F32;
		spec.op = WINNOW_SUM;
		spec.block = args.block;
		spec.density = args.density;
		return spec;
	}
	spec.count = mix(random + 1) % COUNT_MAX >> random % 12;
	spec.dtype = (enum winnow_dtype)(1 + (random >> 8) % 6);
	spec.op = (enum winnow_op)(1 + (random >> 16) % 5);
	if (spec.op == WINNOW_AVG && (spec.dtype == WINNOW_I32 || spec.dtype == WINNOW_I64))
		spec.op = WINNOW_SUM;
	spec.block = 1 + (uint32_t)(random >> 24) % 300;
	spec.density = densities[(random >> 32) % 4];
	spec.in_place = random >> 40 & 1;
	spec.detached = random >> 41 & 1;
	spec.goes_on = !spec.detached && (random >> 42 & 1);
	spec.has_rows = random >> 43 & 1;
	if (spec.has_rows) {
		spec.table.offset = mix(random + 2) % (spec.count + 1);
		spec.table.count = mix(random + 3) % (spec.count - spec.table.offset + 1);
		spec.table.row = mix(random + 4) % 300;
	}
	return spec;
}

static void write_tensors(struct lane *lane)
{
	const struct spec *spec = &lane->spec;
	size_t bytes = spec->count * elem_bytes(spec->dtype);

	for (uint32_t i = 0; i < mine; i++) {
		uint32_t gpu = args.node * args.gpus + (args.all ? i : args.local);
		void *at = spec->in_place ? lane->recv[i] : lane->send[i];

		for (uint64_t e = 0; e < spec->count; e++)
			put(spec->dtype, lane->given[i], e, element(spec, gpu, e));
		if (!spec->in_place)
			check_cuda(
				cudaMemsetAsync(lane->recv[i], 0xa5, bytes + 1, lane->streams[i]),
				"cudaMemsetAsync");
		check_cuda(cudaMemcpyAsync(at, lane->given[i], bytes, cudaMemcpyHostToDevice,
		                           lane->streams[i]),
		           "cudaMemcpyAsync");
	}
}

static void read_tensors(struct lane *lane)
{
	size_t bytes = lane->spec.count * elem_bytes(lane->spec.dtype);

	for (uint32_t i = 0; i < mine; i++)
		check_cuda(cudaMemcpyAsync(lane->got[i], lane->recv[i], bytes,
		                           cudaMemcpyDeviceToHost, lane->streams[i]),
		           "cudaMemcpyAsync");
}

static void begin(struct lane *lane, uint32_t number)
{
	struct spec *spec = &lane->spec;
	struct winnow_options options = {0};
	struct winnow_node_request **request;
	const void *const *send;
	void *const *streams;

	*spec = spec_of(number);
	write_tensors(lane);
	options.block = spec->block;
	options.stream_goes_on = spec->goes_on;
	options.tag = number % 7 == 3 ? number + 1 : 0;
	lane->request = NULL;
	lane->busy = true;
	send = (const void *const *)(spec->in_place ? lane->recv : lane->send);
	streams = (void *const *)lane->streams;
	request = spec->detached ? NULL : &lane->request;
	if (spec->has_rows)
		check(winnow_node_allreduce_segments_async(send, lane->recv, spec->count,
		                                           spec->dtype, spec->op, &spec->table, 1,
		                                           streams, &options, node, request),
		      "allreduce of rows");
	else
		check(winnow_node_allreduce_async(send, lane->recv, spec->count, spec->dtype,
		                                  spec->op, streams, &options, node, request),
		      "allreduce");
	if (!spec->goes_on)
		read_tensors(lane);
}

static void compare(const struct lane *lane)
{
	const struct spec *spec = &lane->spec;
	/* An average of five thirds is not whole in 16 bits. */
	double slack = spec->op != WINNOW_AVG ? 0 : elem_bytes(spec->dtype) == 2 ? 0.02 : 1e-6;

	for (uint32_t i = 0; i < mine; i++)
		for (uint64_t e = 0; e < spec->count; e++) {
			double want = expected(spec, e);
			double found = get(spec->dtype, lane->got[i], e);

			if (found >= want - slack && found <= want + slack)
				continue;
			fprintf(stderr,
			        "device_node: operation %u (type %d, op %d, count %" PRIu64
			        "), GPU %u, element %" PRIu64 ": %g, not %g\n",
			        spec->number, (int)spec->dtype, (int)spec->op, spec->count, i, e,
			        found, want);
			_exit(4);
		}
}

static void end(struct lane *lane)
{
	struct winnow_op_stats stats;

	if (!lane->busy)
		return;
	if (lane->request != NULL) {
		check(winnow_node_wait(lane->request, -1, &stats), "wait");
		winnow_node_request_free(&lane->request);
		blocks += stats.blocks;
		blocks_nonzero += stats.blocks_nonzero;
		blocks_union += stats.blocks_union;
		staged_bytes += stats.staged_out_bytes + stats.staged_in_bytes;
	}
	if (lane->spec.goes_on)
		read_tensors(lane);
	for (uint32_t i = 0; i < mine; i++)
		check_cuda(cudaStreamSynchronize(lane->streams[i]), "cudaStreamSynchronize");
	check(winnow_node_check(node), "check");
	compare(lane);
	lane->busy = false;
}

/* ---- life ---- */

static void parse(char **argv)
{
	for (; *argv != NULL; argv++) {
		const char *value = strchr(*argv, '=');
		size_t length = value != NULL ? (size_t)(value++ - *argv) : 0;
		const struct {
			const char *name;
			const char **text;
			uint32_t *number;
		} known[] = {
			{"aggregators", &args.aggregators, NULL},
			{"job", &args.job, NULL},
			{"id", &args.id, NULL},
			{"node", NULL, &args.node},
			{"nodes", NULL, &args.nodes},
			{"gpus", NULL, &args.gpus},
			{"local", NULL, &args.local},
			{"ops", NULL, &args.ops},
			{"lanes", NULL, &args.lanes},
			{"count", NULL, &args.count},
			{"block", NULL, &args.block},
		};

		for (size_t i = 0; value != NULL && i < sizeof(known) / sizeof(known[0]); i++) {
			if (strlen(known[i].name) != length ||
			    strncmp(known[i].name, *argv, length) != 0)
				continue;
			if (known[i].text != NULL)
				*known[i].text = value;
			else
				*known[i].number = (uint32_t)strtoul(value, NULL, 10);
			if (known[i].number == &args.local)
				args.all = strcmp(value, "all") == 0;
		}
		if (strncmp(*argv, "seed=", 5) == 0)
			args.seed = strtoull(value, NULL, 10);
		if (strncmp(*argv, "density=", 8) == 0)
			args.density = strtod(value, NULL);
	}
	if (args.lanes < 1 || args.lanes > LANES_MAX)
		args.lanes = LANES_MAX;
	mine = args.all ? args.gpus : 1;
}

/* Made by one process, read by the others of the node. */
static void exchange_id(struct winnow_node_id *id)
{
	char part[4096];
	FILE *file;

	snprintf(part, sizeof(part), "%s.part", args.id != NULL ? args.id : "");
	if (args.all || args.local == 0) {
		check(winnow_node_id_make(id), "winnow_node_id_make");
		if (args.id == NULL)
			return;
		file = fopen(part, "w");
		if (file == NULL || fwrite(id, sizeof(*id), 1, file) != 1 || fclose(file) != 0 ||
		    rename(part, args.id) != 0)
			_exit(3);
		return;
	}
	while ((file = fopen(args.id, "r")) == NULL)
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	if (fread(id, sizeof(*id), 1, file) != 1)
		_exit(3);
	fclose(file);
}

static void open_lanes(void)
{
	size_t bytes = (args.density >= 0 ? args.count : COUNT_MAX) * 8 + 64;

	for (uint32_t i = 0; i < args.lanes * mine; i++) {
		struct lane *lane = &lanes[i / mine];
		uint32_t gpu = i % mine;

		check_cuda(cudaSetDevice((int)gpu), "cudaSetDevice");
		check_cuda(cudaStreamCreate(&lane->streams[gpu]), "cudaStreamCreate");
		check_cuda(cudaMalloc(&lane->send[gpu], bytes), "cudaMalloc");
		check_cuda(cudaMalloc(&lane->recv[gpu], bytes), "cudaMalloc");
		check_cuda(cudaHostAlloc((void **)&lane->given[gpu], bytes, 0), "cudaHostAlloc");
		check_cuda(cudaHostAlloc((void **)&lane->got[gpu], bytes, 0), "cudaHostAlloc");
	}
}

static void open_node(void)
{
	int gpus[GPUS_MAX];
	struct winnow_config config;
	struct winnow_node_config node_config = {
		.config = &config,
		.local_world = args.gpus,
		.local_rank = args.all ? 0 : args.local,
		.gpu_count = mine,
		.gpus = gpus,
	};

	for (int i = 0; i < GPUS_MAX; i++)
		gpus[i] = i;
	winnow_config_init(&config);
	if (args.aggregators != NULL)
		config.aggregators = args.aggregators;
	config.job = args.job;
	config.rank = args.node;
	config.world = args.nodes;
	if (config.key == NULL && config.key_file == NULL)
		config.insecure_no_key = 1;
	exchange_id(&node_config.id);
	check(winnow_node_create(&node_config, &node), "winnow_node_create");
}

int main(int argc, char **argv)
{
	struct winnow_stats stats;

	(void)argc;
	parse(argv + 1);
	open_node();
	open_lanes();
	printf("ready\n");
	fflush(stdout);
	for (uint32_t i = 0; i < args.ops; i++) {
		end(&lanes[i % args.lanes]);
		begin(&lanes[i % args.lanes], i);
	}
	for (uint32_t i = 0; i < args.lanes; i++)
		end(&lanes[(args.ops + i) % args.lanes]);
	winnow_node_stats(node, &stats);
	printf("{\"ops\": %u, \"sent_bytes\": %" PRIu64 ", \"received_bytes\": %" PRIu64
	       ", \"blocks\": %" PRIu64 ", \"nonzero\": %" PRIu64 ", \"union\": %" PRIu64
	       ", \"staged_bytes\": %" PRIu64 "}\n",
	       args.ops, stats.sent_bytes, stats.received_bytes, blocks, blocks_nonzero,
	       blocks_union, staged_bytes);
	winnow_node_destroy(node);
	return 0;
}
