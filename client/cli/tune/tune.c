// SPDX-License-Identifier: BSD-3-Clause
/* tune.c - winnow tune: options, and the order of the steps */

#include "client/cli/tune/tune.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "bitmap/control/options.h"
#include "client/winnow.h"
#include "ebpf/wire.h"

#define WINDOW_BYTES (2u << 20) /* winnowd's default; only for the estimate of acknowledgements. */

static struct {
	const char *operands[SOURCE_FILES_MAX];
	uint32_t operand_count;
	const char *blocks, *job, *plot;
	bool json, multicast;
	uint64_t world, rate, aggregator_rate, channels, mtu, ops, size, unit;
	uint32_t aggregators;
	struct pattern pattern;
	enum dtype dtype;
} settings;

static const struct option list[] = {
	{"blocks", "ELEMENTS[,..]", OPTION_TEXT, &settings.blocks, NULL, NULL, 0, 0,
         "block sizes to compare; by default 8 to 8192 and rows"},
	{"world", "N", OPTION_COUNT, &settings.world, "0", "WORLD_SIZE", 0, 4096,
         "number of workers; 0: one for each file or trace, 4 for a pattern"},
	{"plot", "FILE", OPTION_TEXT, &settings.plot, NULL, NULL, 0, 0,
         "draw the curve with gnuplot, into a .svg or .png file"},
	{"json", NULL, OPTION_FLAG, &settings.json, "0", NULL, 0, 0, "print one JSON object"},

	{"rate", "BIT/S", OPTION_RATE, &settings.rate, "10G", NULL, 1000, 1e15,
         "link rate of workers"},
	{"aggregator-count", "N", OPTION_COUNT32, &settings.aggregators, "0", NULL, 1,
         WIRE_SHARDS_MAX, "number of aggregators; 0: the traced job's, or 1"},
	{"aggregator-rate", "BIT/S", OPTION_RATE, &settings.aggregator_rate, "0", NULL, 0, 1e15,
         "link rate of aggregators; 0: as --rate"},
	{"channels", "N", OPTION_COUNT, &settings.channels, "0", NULL, 0, 256,
         "threads of all aggregators; 0: the traced job's, or one each"},
	{"mtu", "BYTES", OPTION_COUNT, &settings.mtu, "0", NULL,
         WIRE_PAYLOAD_MIN + WIRE_IP_UDP_BYTES, WIRE_PAYLOAD_MAX + WIRE_IP_UDP_BYTES,
         "MTU of the network; 0: the traced job's, or 1500"},
	{"multicast", "1|0", OPTION_FLAG, &settings.multicast, "1", NULL, 0, 0,
         "use multicast; 0: aggregators send each worker its own copy"},

	{"job", "NAME", OPTION_TEXT, &settings.job, NULL, NULL, 0, 0,
         "the job to use if several are traced"},
	{"ops", "N", OPTION_COUNT, &settings.ops, "64", NULL, 0, 1e9,
         "number of operations to use, spread over the trace; 0: all"},

	{"dtype", CLI_DTYPES, OPTION_CHOICE, &settings.dtype, "f32", NULL, WINNOW_F32, WINNOW_I64,
         "type of the elements, also in files"},
	{"size", "SIZE", OPTION_SIZE, &settings.size, "100M", OPTION_ARGUMENT, 0, 1e15,
         "bytes of the tensor"},
	{"density", "D", OPTION_REAL, &settings.pattern.density, "0.1", OPTION_ARGUMENT, 0, 1,
         "share of each worker's units that is non-zero"},
	{"unit", "ELEMENTS", OPTION_COUNT, &settings.unit, "256", NULL, 1, 1e9,
         "elements of a unit, which is zero or non-zero as a whole"},
	{"overlap", "random|all|none", OPTION_CHOICE, &settings.pattern.overlap, "random",
         OPTION_ARGUMENT, PATTERN_RANDOM, PATTERN_NONE,
         "how non-zero units are chosen; all: the same on all workers"},
	{"seed", "N", OPTION_COUNT, &settings.pattern.seed, "1", NULL, 0, 0, "seed of the pattern"},
	{0},
};

static const struct option_group groups[] = {
	{"network", "rate", false},
	{"trace", "job", false},
	{"pattern", "dtype", false},
	{0},
};

static const struct options options = {
	.program = "winnow tune",
	.usage = "[FILE.. | FOLDER] [...]",
	.about =
		"Predicts the traffic and time of each block size, and shows the best one.\n"
		"FILE.. are gradients as raw elements: one file for each worker, then those of the "
		"next step.\nFOLDER is the recording of a job that ran with WINNOW_TRACE=FOLDER. "
		"Without either, gradients are\nmade up from a pattern.",
	.examples = "  winnow tune grad.0 grad.1 --rate 10G\n"
		    "  WINNOW_TRACE=/tmp/t python3 train.py; winnow tune /tmp/t --plot curve.svg\n",
	.list = list,
	.groups = groups,
	.section = "tune",
	.operands = settings.operands,
	.operand_count = &settings.operand_count,
	.operand_max = SOURCE_FILES_MAX,
};

static int source_open(struct source *source)
{
	const struct source_op op = {.count = settings.size / dtype_bytes(settings.dtype),
	                             .dtype = settings.dtype,
	                             .row = settings.unit};
	uint32_t world = (uint32_t)settings.world;
	struct why why = {""};
	struct stat status;
	int result = 0;

	if (settings.operand_count == 0 && op.count == 0)
		return cli_error(2, "--size is %llu: want at least %u, an element of %s",
		                 (unsigned long long)settings.size, dtype_bytes(op.dtype),
		                 dtype_name(op.dtype));
	if (settings.operand_count == 0)
		source_pattern(source, &settings.pattern, &op, world);
	else if (settings.operand_count == 1 && stat(settings.operands[0], &status) == 0 &&
	         S_ISDIR(status.st_mode))
		result = source_trace(source, settings.operands[0], settings.job, world, &why);
	else
		result = source_files(source, settings.operands, settings.operand_count, &op, world,
		                      &why);
	if (result != 0)
		return cli_error(result, "%s", why.text);
	source_thin(source, (uint32_t)settings.ops);
	return 0;
}

/* Takes the options' values, or the traced job's, or the usual ones. */
static int net_choose(struct tune *tune)
{
	const struct trace_head *head =
		tune->source.traces != NULL ? &tune->source.traces[0]->head : NULL;
	struct predict_net *net = &tune->net;

	*net = (struct predict_net){
		.world = tune->source.world,
		.aggregators = head != NULL ? head->aggregators : 1,
		.payload = head != NULL ? head->payload : 1500 - WIRE_IP_UDP_BYTES,
		.multicast = settings.multicast,
		.rate = (double)settings.rate / 8,
	};
	if (settings.aggregators != 0)
		net->aggregators = settings.aggregators;
	if (settings.mtu != 0)
		net->payload = (uint32_t)settings.mtu - WIRE_IP_UDP_BYTES;
	net->channels = net->aggregators;
	if (head != NULL && net->aggregators == head->aggregators)
		net->channels = head->channels;
	if (settings.channels != 0)
		net->channels = (uint32_t)settings.channels;
	if (net->channels < net->aggregators)
		return cli_error(2,
		                 "--channels is %u: want at least one for each of %u aggregators",
		                 net->channels, net->aggregators);
	for (net->window = 4;
	     net->window * 2 <= WINDOW_BYTES / net->payload && net->window < WIRE_WINDOW_MAX;)
		net->window *= 2;
	net->aggregator_rate =
		settings.aggregator_rate != 0 ? (double)settings.aggregator_rate / 8 : net->rate;
	return 0;
}

static int tune_run(struct tune *tune)
{
	int status = source_open(&tune->source);

	if (status == 0)
		status = tune_blocks_choose(tune, settings.blocks);
	if (status == 0)
		status = net_choose(tune);
	if (status == 0)
		status = tune_predict(tune);
	if (status != 0)
		return status;
	if (settings.json)
		tune_json(tune);
	else
		tune_print(tune);
	status = cli_flush(1);
	return status == 0 && settings.plot != NULL ? tune_plot(tune, settings.plot) : status;
}

int cli_tune(int argc, char **argv)
{
	static struct tune tune;
	int status = options_read(&options, argc, argv);
	const char *dot;

	if (status != 0)
		return status == 1 ? 0 : status;
	dot = settings.plot != NULL ? strrchr(settings.plot, '.') : ".svg";
	if (dot == NULL || (strcmp(dot, ".svg") != 0 && strcmp(dot, ".png") != 0))
		return cli_error(2, "--plot is '%s': want a name that ends in .svg or .png",
		                 settings.plot);
	status = tune_run(&tune);
	source_close(&tune.source);
	return status;
}
