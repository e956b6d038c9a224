// SPDX-License-Identifier: BSD-3-Clause
/* bench.c - winnow bench: options and the measured loop */

#include "client/cli/bench/bench_state.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "bitmap/dtype.h"
#include "bitmap/net/clock.h"
#include "client/cli/cli.h"
#include "client/comm/comm_options.h"
#include "ebpf/geometry.h"

#define SIZE_MOST (UINT64_C(1) << 45)

static struct bench_settings settings;

static const struct option list[] = {
	{"config", "FILE", OPTION_TEXT, &settings.config, NULL, NULL, 0, 0,
         "INI file to read options from: name = value"},
	{"aggregators", "HOST:PORT[,..]", OPTION_TEXT, &settings.comm.aggregators, NULL, NULL, 0, 0,
         "aggregators, in the same order on all workers"},
	{"local", "N", OPTION_COUNT32, &settings.local, "0", NULL, 0, 512,
         "run an aggregator and N workers on this machine"},
	{"job", "NAME", OPTION_TEXT, &settings.comm.job, "bench", NULL, 0, 0, "job to join"},
	COMM_OPTIONS_RANK(settings.comm),
	{"size", "SIZE[,..]", OPTION_TEXT, &settings.text.sizes, "100M", NULL, 0, 0,
         "bytes of the tensor; several sizes give several rows"},
	{"minbytes", "SIZE", OPTION_SIZE, &settings.sweep.from_bytes, "0", NULL, 0, SIZE_MOST,
         "first size of a sweep, which replaces --size"},
	{"maxbytes", "SIZE", OPTION_SIZE, &settings.sweep.to_bytes, "0", NULL, 0, SIZE_MOST,
         "last size of the sweep"},
	{"stepfactor", "N", OPTION_COUNT, &settings.sweep.factor, "2", NULL, 2, 65536,
         "factor between two sizes of the sweep"},
	{"dtype", CLI_DTYPES, OPTION_CHOICE, &settings.dtype, "f32", NULL, WINNOW_F32, WINNOW_I64,
         "type of the elements"},
	{"op", "sum|avg,average,mean|min,minimum|max,maximum|prod,product", OPTION_CHOICE,
         &settings.op, "sum", NULL, WINNOW_SUM, WINNOW_PROD, "the reduction"},
	{"density", "D[,..]", OPTION_TEXT, &settings.text.densities, "0.1", NULL, 0, 0,
         "share of each worker's blocks that is non-zero"},
	{"overlap", "HOW", OPTION_TEXT, &settings.text.overlap, "random", NULL, 0, 0,
         "non-zero blocks: random, all, none, or bitmaps file:PATH.%r"},
	{"seed", "N", OPTION_COUNT, &settings.seed, "1", NULL, 0, 0, "seed of the tensors"},
	{"iters", "N", OPTION_COUNT, &settings.iters, "10", NULL, 1, 1000000,
         "measured iterations"},
	{"warmup", "N", OPTION_COUNT, &settings.warmup, "2", NULL, 0, 1000000,
         "iterations before the measured ones"},
	{"rate", "BIT/S", OPTION_RATE, &settings.rate, "0", NULL, 0, 0,
         "link rate of workers; shows the lower bound of the time"},
	{"aggregator-rate", "BIT/S", OPTION_RATE, &settings.aggregator_rate, "0", NULL, 0, 0,
         "link rate of aggregators for that bound; 0: as --rate"},
	{"check", NULL, OPTION_FLAG, &settings.check, "0", NULL, 0, 0,
         "compare each element with the expected result"},
	{"in-place", NULL, OPTION_FLAG, &settings.in_place, "0", NULL, 0, 0,
         "use one buffer for the input and the result"},
	{"json", NULL, OPTION_FLAG, &settings.json, "0", NULL, 0, 0, "print one JSON object"},
	COMM_OPTIONS_HOW(settings.comm),
	{"sites", "S", OPTION_COUNT32, &settings.sites, "0", NULL, 0, BENCH_SITES_MAX,
         "sites between the workers and the aggregator; --local starts them"},
	COMM_OPTIONS_PORT(settings.comm),
	COMM_OPTIONS_KEY(settings.comm),
	{0},
};

static const struct option_group groups[] = {
	{"job", "aggregators", false},
	{"tensor", "size", false},
	{"measurement", "iters", false},
	{"reduction", "block", false},
	{"waiting", "timeout", true},
	{"network", "payload", true},
	{"dpdk", "eal", true},
	{"keys", "key-file", false},
	{0},
};

/* The names of nccl-tests. */
static const struct option_alias aliases[] = {{"-b", "minbytes"},   {"-e", "maxbytes"},
                                              {"-f", "stepfactor"}, {"-n", "iters"},
                                              {"-w", "warmup"},     {0}};

static const struct options options = {
	.program = "winnow bench",
	.usage = "--aggregators HOST:PORT --rank R --world N [...]   or   --local N [...]",
	.about = "Measures allreduce: its time, its bytes on the wire, and how close it is to the "
		 "bound.",
	.examples = "  winnow bench --local 4 --density 1,0.1,0.01 --check\n"
		    "  winnow bench --aggregators 10.0.0.1:5555 --job b1 --rank 0 --world 4 --rate "
		    "10G\n",
	.list = list,
	.groups = groups,
	.aliases = aliases,
	.section = "bench",
	.joins = true,
	.file_option = "config",
};

static bool size_read(const char *item, uint32_t at)
{
	return option_size(item, &settings.rows.sizes[at]) == 0 &&
	       settings.rows.sizes[at] <= SIZE_MOST;
}

static bool density_read(const char *item, uint32_t at)
{
	double *density = &settings.rows.densities[at];
	char *end;

	*density = strtod(item, &end);
	return end != item && *end == '\0' && *density >= 0 && *density <= 1;
}

/* Reads a list such as "1M,10M": calls read() with each item and its place. */
static bool list_read(const char *text, bool (*read)(const char *item, uint32_t at),
                      uint32_t *count)
{
	char item[64];

	if (cli_item_count(text) > BENCH_LIST_MAX)
		return false;
	for (const char *at = text; at != NULL; ++*count) {
		at = option_item(at, item, sizeof(item));
		if (!read(item, *count))
			return false;
	}
	return true;
}

/* Turns -b, -e and -f into a list of sizes. */
static int sweep_read(void)
{
	if (settings.sweep.from_bytes == 0 && settings.sweep.to_bytes == 0)
		return 0;
	if (settings.sweep.from_bytes == 0 || settings.sweep.to_bytes < settings.sweep.from_bytes)
		return cli_error(2,
		                 "--minbytes is %llu and --maxbytes %llu: want --minbytes of at "
		                 "least 1 and --maxbytes not below it",
		                 (unsigned long long)settings.sweep.from_bytes,
		                 (unsigned long long)settings.sweep.to_bytes);
	if (settings.in_place)
		return cli_error(2,
		                 "leave --in-place out: a sweep measures both in and out of place");
	settings.rows.size_count = 0;
	for (uint64_t size = settings.sweep.from_bytes; size <= settings.sweep.to_bytes;
	     size *= settings.sweep.factor) {
		/* The limits' quotient is 2^45. */
		assert(settings.rows.size_count < BENCH_LIST_MAX);
		settings.rows.sizes[settings.rows.size_count++] = size;
	}
	return 0;
}

static int texts_read(void)
{
	if (!list_read(settings.text.sizes, size_read, &settings.rows.size_count))
		return cli_error(2, "--size is '%s': want sizes such as 100M or 4K,1M,100M",
		                 settings.text.sizes);
	if (!list_read(settings.text.densities, density_read, &settings.rows.density_count))
		return cli_error(
			2, "--density is '%s': want numbers from 0 to 1 such as 0.1 or 1,0.1,0.01",
			settings.text.densities);
	if (sweep_read() != 0)
		return 2;
	if (settings.rows.size_count * settings.rows.density_count > BENCH_ROWS_MAX)
		return cli_error(2, "more than %d rows: give fewer sizes or densities",
		                 BENCH_ROWS_MAX);
	if (settings.comm.wire >= WINNOW_WIRE_FIXED32 &&
	    (settings.dtype != WINNOW_F32 || settings.op > WINNOW_AVG))
		return cli_error(2, "--wire %s is for --dtype f32 with --op sum or avg",
		                 bench_wires[settings.comm.wire]);
	if (strlen(settings.text.overlap) > BENCH_NAME_MAX)
		return cli_error(2, "--overlap has %zu characters: want at most %d",
		                 strlen(settings.text.overlap), BENCH_NAME_MAX);
	if (strncmp(settings.text.overlap, "file:", 5) == 0)
		settings.overlap = PATTERN_FILE;
	else if (!pattern_overlap_read(settings.text.overlap, &settings.overlap))
		return cli_error(2, "--overlap is '%s': want random, all, none or file:PATH.%%r",
		                 settings.text.overlap);
	return 0;
}

static int settings_check(void)
{
	const char *exported = secure_getenv("WINNOW_AGGREGATORS");

	if (settings.local != 0 && settings.comm.aggregators != NULL && exported != NULL &&
	    strcmp(settings.comm.aggregators, exported) == 0)
		settings.comm.aggregators = NULL; /* The variable is meant for other jobs. */
	if (settings.local != 0 && settings.comm.aggregators != NULL)
		return cli_error(2, "--local starts its own aggregator: leave --aggregators out");
	if (settings.local == 0 && settings.comm.aggregators == NULL)
		return cli_error(
			2, "give --aggregators HOST:PORT, or --local N to measure on this machine");
	if (settings.local == 0 && settings.comm.rank >= settings.comm.world)
		return cli_error(2, "--rank must be below --world: ranks are 0 to world - 1");
	if (settings.sites > (settings.local != 0 ? settings.local : settings.comm.world))
		return cli_error(2, "--sites is %u: want at most one for each worker",
		                 settings.sites);
	return texts_read();
}

/* ---- the bound of docs/BENCHMARKS.md ---- */

/*
 * The least time that any such system needs. Each worker sends its non-zero blocks and receives the union, and the
 * aggregators carry all of it, in full frames with headers.
 */
static double bound_us(const struct bench_row *row)
{
	struct geometry_input input = {
		.count = row->count,
		.block_elems = settings.comm.block,
		.elem_bytes = dtype_bytes((enum dtype)settings.dtype),
		.shard_count = row->stats.channels,
		.payload = row->stats.payload,
	};
	double world = (double)settings.comm.world, out = row->density, in = row->union_density;
	double workers_rate = (double)settings.rate / 8e6; /* bytes a microsecond */
	double aggregators_rate = settings.aggregator_rate != 0
	                                  ? (double)settings.aggregator_rate / 8e6
	                                  : workers_rate;
	double copies = row->stats.multicast == settings.aggregators ? 1 : world;
	double frame_bytes, wire_bytes;
	struct geometry cut;

	if (settings.rate == 0 || !geometry_compute(&input, &cut))
		return 0;
	frame_bytes = cut.one.frames.block_parts > 1
	                      ? cut.one.frames.part_bytes
	                      : cut.one.frames.frame_blocks * cut.one.frames.block_bytes;
	wire_bytes = (double)row->bytes * (frame_bytes + WIRE_HEADER_BYTES + WIRE_ETHERNET_BYTES) /
	             frame_bytes;
	aggregators_rate *= settings.aggregators;
	return wire_bytes * fmax(fmax(out, in) / workers_rate,
	                         fmax(world * out, copies * in) / aggregators_rate);
}

/* ---- measuring ---- */

static void row_progress(const char *what, uint64_t done, uint64_t of)
{
	if (settings.comm.rank == 0 && of > 0)
		cli_progress("%s %llu/%llu", what, (unsigned long long)done + 1,
		             (unsigned long long)of);
	else if (settings.comm.rank == 0)
		cli_progress("%s", what);
}

static void times_summarize(struct bench_times *times, double us[], uint64_t n)
{
	times->time_us_median = median(us, n);
	times->time_us_min = us[0];
	times->time_us_p99 = us[(n * 99 + 99) / 100 - 1];
	times->time_us_max = us[n - 1];
	times->sums.sent_bytes /= (double)n;
	times->sums.received_bytes /= (double)n;
	times->sums.cpu_us /= (double)n;
}

static int call_failed(const char *what)
{
	cli_progress("%s", "");
	return cli_error(1, "rank %u: %s: %s", settings.comm.rank, what, winnow_last_error());
}

/* CPU time of all threads of this process, in user space and in the kernel for it. */
static double cpu_us(void)
{
	struct rusage used;

	getrusage(RUSAGE_SELF, &used);
	return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
	       (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* Runs one operation and adds its time and traffic to *sums. Returns 0, or 1 after a line on stderr. */
static int op_measure(struct winnow_comm *comm, const void *send, void *recv, uint64_t count,
                      struct bench_sums *sums, struct winnow_op_stats *stats)
{
	const struct winnow_options how = {.wire = settings.comm.wire};
	struct winnow_stats before, after;
	struct winnow_request *request;
	double start_cpu_us;
	uint64_t start_ns;
	int result;

	/* An empty operation is a barrier, so that all workers start together. */
	if (winnow_allreduce(recv, recv, 0, WINNOW_I32, WINNOW_SUM, comm) != WINNOW_OK)
		return call_failed("barrier");
	winnow_comm_stats(comm, &before);
	start_cpu_us = cpu_us();
	start_ns = clock_ns();
	result = winnow_allreduce_async(send, recv, count, settings.dtype, settings.op, &how, comm,
	                                &request);
	if (result == WINNOW_OK)
		result = winnow_wait(request, -1, stats);
	sums->time_us += (double)(clock_ns() - start_ns) / 1e3;
	sums->cpu_us += cpu_us() - start_cpu_us;
	if (result != WINNOW_OK)
		return call_failed("allreduce"); /* Its communicator frees the request. */
	winnow_request_free(&request);
	winnow_comm_stats(comm, &after);
	sums->sent_bytes += (double)(after.sent_bytes - before.sent_bytes);
	sums->received_bytes += (double)(after.received_bytes - before.received_bytes);
	sums->retransmits += after.retransmits - before.retransmits;
	sums->nacks += after.nacks - before.nacks;
	sums->sent_packets += after.sent_packets - before.sent_packets;
	sums->received_packets += after.received_packets - before.received_packets;
	sums->sent_marked += after.sent_marked - before.sent_marked;
	sums->received_marked += after.received_marked - before.received_marked;
	sums->received_lost += after.received_lost - before.received_lost;
	sums->held_window_us += after.held_window_us - before.held_window_us;
	sums->held_credit_us += after.held_credit_us - before.held_credit_us;
	return 0;
}

static int row_measure(struct winnow_comm *comm, const struct bench_data *data, void *recv,
                       double us[], struct bench_row *row, uint32_t place)
{
	bool in_place = settings.in_place || place == 1;
	struct bench_times *times = &row->times[place];
	struct winnow_op_stats stats = {0};

	for (uint64_t i = 0; i < settings.warmup + settings.iters; i++) {
		bool counted = i >= settings.warmup;
		double before_us;

		row_progress(counted ? "iteration" : "warm-up", counted ? i - settings.warmup : i,
		             counted ? settings.iters : settings.warmup);
		if (i == settings.warmup)
			times->sums = (struct bench_sums){0};
		before_us = times->sums.time_us;
		if (in_place)
			memcpy(recv, data->tensor, row->bytes);
		if (op_measure(comm, in_place ? recv : data->tensor, recv, row->count, &times->sums,
		               &stats) != 0)
			return 1;
		if (counted)
			us[i - settings.warmup] = times->sums.time_us - before_us;
	}
	if (stats.blocks > 0) {
		row->density = (double)stats.blocks_nonzero / (double)stats.blocks;
		row->union_density = (double)stats.blocks_union / (double)stats.blocks;
	}
	times_summarize(times, us, settings.iters);
	if (settings.check) {
		row_progress("checking", 0, 0);
		times->wrong = bench_data_check(data, recv);
	}
	return 0;
}

static int run_row(struct winnow_comm *comm, struct bench_row *row)
{
	uint32_t places = bench_sweeps(&settings) ? BENCH_PLACES : 1;
	double *us = cli_memory(settings.iters, sizeof(*us), "times");
	void *recv = cli_tensor(row->bytes);
	struct bench_data *data;
	int status;

	row_progress("making tensors", 0, 0);
	data = bench_data_make(&settings, row->count, row->density);
	status = data != NULL ? 0 : 1;
	for (uint32_t place = 0; place < places && status == 0; place++) {
		memset(recv, 0x5a, row->bytes);
		status = row_measure(comm, data, recv, us, row, place);
	}
	row_progress("", 0, 0);
	winnow_comm_stats(comm, &row->stats);
	row->bound_us = bound_us(row);
	if (data != NULL)
		bench_data_free(data);
	free(recv);
	free(us);
	return status;
}

static int run_rows(struct winnow_comm *comm)
{
	static struct bench_row rows[BENCH_ROWS_MAX];
	uint32_t elem_bytes = dtype_bytes((enum dtype)settings.dtype), count = 0;
	bool prints = settings.comm.rank == 0 && !settings.json;
	uint64_t wrong = 0;

	row_progress("", 0, 0);
	if (prints)
		bench_print_head(&settings);
	for (uint32_t s = 0; s < settings.rows.size_count; s++) {
		for (uint32_t d = 0; d < settings.rows.density_count; d++) {
			struct bench_row *row = &rows[count];

			row->count = settings.rows.sizes[s] / elem_bytes;
			row->bytes = row->count * elem_bytes;
			row->density = settings.rows.densities[d];
			if (run_row(comm, row) != 0)
				return 1;
			if (prints)
				bench_print_row(&settings, row);
			wrong += bench_wrong(row);
			count++;
		}
	}
	if (prints)
		bench_print_foot(&settings, rows, count);
	if (settings.json)
		bench_json(&settings, rows, count);
	if (wrong > 0 && settings.comm.rank != 0) /* Only rank 0 shows a table. */
		cli_error(1, "rank %u has %llu wrong elements", settings.comm.rank,
		          (unsigned long long)wrong);
	return cli_flush(1) != 0 || wrong > 0 ? 1 : 0;
}

static int join_and_run(void)
{
	struct winnow_comm *comm;
	struct winnow_stats stats;
	int status;

	row_progress("joining", 0, 0);
	cli_tells(&settings.comm);
	status = winnow_comm_create(&settings.comm, &comm);
	if (status != WINNOW_OK)
		return cli_error(1, "rank %u: cannot join: %s", settings.comm.rank,
		                 winnow_last_error());
	winnow_comm_stats(comm, &stats);
	/* AUTO means FIXED32 where all aggregators add int32 in the kernel. */
	settings.auto_fixed32 = settings.comm.wire == WINNOW_WIRE_AUTO &&
	                        stats.wire == WINNOW_WIRE_FIXED32 && settings.dtype == WINNOW_F32 &&
	                        settings.op <= WINNOW_AVG;
	status = run_rows(comm);
	winnow_comm_destroy(comm);
	return status;
}

int cli_bench(int argc, char **argv)
{
	int status;

	winnow_config_init(&settings.comm);
	status = options_read(&options, argc, argv);
	if (status != 0)
		return status == 1 ? 0 : status;
	status = settings_check();
	if (status != 0)
		return status;
	if (settings.local != 0)
		return bench_local(&settings, argc, argv);
	settings.aggregators = cli_item_count(settings.comm.aggregators);
	return join_and_run();
}
