// SPDX-License-Identifier: BSD-3-Clause
/* tune.c - winnow tune: options, and what happens in which order */

#include "client/cli/tune/tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/comm/comm_options.h"
#include "ebpf/wire.h"

#define MTU_DEFAULT 1500
#define WINDOW_BYTES (2u << 20) /* winnowd's default: for the estimate of acknowledgements */

static struct tune_settings settings;

static const struct option list[] = {
	{"rate", "BIT/S", OPTION_RATE, &settings.rate, "10G", NULL, 1000, 1e15,
         "link rate of workers"},
	{"blocks", "ELEMENTS[,..]", OPTION_TEXT, &settings.blocks_text, NULL, NULL, 0, 0,
         "block sizes to compare; default: 8 to 8192, and rows"},
	{"world", "N", OPTION_COUNT, &settings.world, "0", "WORLD_SIZE", 0, 4096,
         "workers; 0: as many as there are files or traces; for a pattern 4"},
	{"aggregator-count", "N", OPTION_COUNT32, &settings.aggregators, "0", NULL, 1,
         WIRE_SHARDS_MAX, "how many aggregators; 0: the traced job's, or 1"},
	{"aggregator-rate", "BIT/S", OPTION_RATE, &settings.aggregator_rate, "0", NULL, 0, 1e15,
         "link rate of aggregators; 0: as workers'"},
	{"channels", "N", OPTION_COUNT, &settings.channels, "0", NULL, 0, 256,
         "threads of all aggregators; 0: the traced job's, or one each"},
	{"mtu", "BYTES", OPTION_COUNT, &settings.mtu, "0", NULL,
         WIRE_PAYLOAD_MIN + WIRE_IP_UDP_BYTES, WIRE_PAYLOAD_MAX + WIRE_IP_UDP_BYTES,
         "of the network; 0: the traced job's, or 1500"},
	{"multicast", "1|0", OPTION_INT_FLAG, &settings.comm.multicast, "1", NULL, 0, 0,
         "0: aggregators send results one by one"},
	{"job", "NAME", OPTION_TEXT, &settings.comm.job, NULL, NULL, 0, 0,
         "which of several traced jobs to use; or which job to join"},
	{"ops", "N", OPTION_COUNT, &settings.ops, "64", NULL, 0, 1e9,
         "operations of a trace to use, spread over it; 0: all"},
	{"names", "FILE", OPTION_TEXT, &settings.names, NULL, NULL, 0, 0,
         "JSON with names, offsets and shapes of parameters, to show each; default: what "
         "PyTorch's hook has written beside the trace"},
	{"size", "SIZE", OPTION_SIZE, &settings.size, "100M", OPTION_ARGUMENT, 0, 1e15,
         "of a pattern: bytes"},
	{"dtype", CLI_DTYPES, OPTION_CHOICE, &settings.dtype, "f32", NULL, WINNOW_F32, WINNOW_I64,
         "of a pattern"},
	{"density", "D", OPTION_REAL, &settings.pattern.density, "0.1", OPTION_ARGUMENT, 0, 1,
         "of a pattern: share of a worker's units that is non-zero"},
	{"unit", "ELEMENTS", OPTION_COUNT, &settings.unit, "256", NULL, 1, 1e9,
         "of a pattern: elements that are zero or non-zero together; a row"},
	{"overlap", "random|all|none", OPTION_CHOICE, &settings.pattern.overlap, "random",
         OPTION_ARGUMENT, PATTERN_RANDOM, PATTERN_NONE, "of a pattern"},
	{"seed", "N", OPTION_COUNT, &settings.pattern.seed, "1", NULL, 0, 0, "of a pattern"},
	{"local", "N", OPTION_COUNT, &settings.local, "0", NULL, 0, 512,
         "also measure, with an aggregator and N workers on this machine"},
	{"aggregators", "HOST:PORT[,..]", OPTION_TEXT, &settings.comm.aggregators, NULL,
         OPTION_ARGUMENT, 0, 0,
         "also measure: start this on every worker, with --rank and --world"},
	{"rank", "R", OPTION_COUNT32, &settings.comm.rank, "0", "RANK", 0, 4095,
         "this worker, from 0"},
	{"iters", "N", OPTION_COUNT, &settings.iters, "5", NULL, 1, 1000000,
         "times to measure each"},
	{"warmup", "N", OPTION_COUNT, &settings.warmup, "1", NULL, 0, 1000000,
         "unmeasured times before them"},
	{"plot", "FILE", OPTION_TEXT, &settings.plot, NULL, NULL, 0, 0,
         "draw the curve, .png or .svg; needs libcairo2"},
	{"json", NULL, OPTION_FLAG, &settings.json, "0", NULL, 0, 0, "print one JSON object"},
	{"write", "FILE", OPTION_TEXT, &settings.write, NULL, NULL, 0, 0,
         "write the best block size into a file for WINNOW_CONFIG or bench --config"},
	{"apply", NULL, OPTION_FLAG, &settings.apply, "0", NULL, 0, 0,
         "the same, into the file that WINNOW_CONFIG names: jobs that start later use it"},
	COMM_OPTIONS_KEY(settings.comm),
	{0},
};

static const struct options options = {
	.program = "winnow tune",
	.usage = "[FILE.npy.. | FOLDER] [...]",
	.about = "Shows what each block size would put on the wire and take, and which is best. "
		 "FILE..: gradients,\na .npy for each worker (and then for the next step). FOLDER: "
		 "what a job with WINNOW_TRACE=FOLDER has\nrecorded. Neither: a pattern.",
	.examples = "  winnow tune grad.0.npy grad.1.npy grad.2.npy grad.3.npy --rate 10G\n"
		    "  WINNOW_TRACE=/tmp/t python3 train.py; winnow tune /tmp/t --plot curve.svg\n"
		    "  winnow tune --density 0.01 --unit 128 --world 8 --local 8\n",
	.list = list,
	.section = "tune",
	.operands = settings.operands,
	.operand_count = &settings.operand_count,
	.operand_max = SOURCE_FILES_MAX,
};

static int settings_check(void)
{
	const char *dot = settings.plot != NULL ? strrchr(settings.plot, '.') : NULL;

	if (settings.comm.aggregators != NULL && strchr(settings.comm.aggregators, ':') == NULL)
		return cli_error(2,
		                 "--aggregators is '%s': want HOST:PORT[,..]; how many there are "
		                 "says --aggregator-count",
		                 settings.comm.aggregators);
	if (settings.local != 0 && settings.comm.aggregators != NULL)
		return cli_error(2, "--local starts its own aggregator: leave --aggregators out");
	if (settings.comm.aggregators != NULL && settings.world <= settings.comm.rank)
		return cli_error(2, "--rank must be below --world: ranks are 0 to world - 1");
	if (settings.local != 0 && settings.world != 0 && settings.world != settings.local)
		settings.world = settings.local;
	if (settings.plot != NULL &&
	    (dot == NULL || (strcmp(dot, ".svg") != 0 && strcmp(dot, ".png") != 0)))
		return cli_error(2, "--plot is '%s': want a name that ends in .svg or .png",
		                 settings.plot);
	if (settings.apply && secure_getenv("WINNOW_CONFIG") == NULL)
		return cli_error(2, "--apply writes into the file that WINNOW_CONFIG names: set it "
		                    "for the job and here");
	return 0;
}

static int source_open(struct source *source)
{
	uint32_t world = (uint32_t)(settings.local != 0 ? settings.local : settings.world);
	uint64_t count = settings.size / dtype_bytes((enum dtype)settings.dtype);
	struct why why = {""};
	struct stat status;
	int result = 0;

	if (settings.operand_count == 0)
		source_pattern(source, &settings.pattern,
		               &(struct source_op){.count = count,
		                                   .dtype = (enum dtype)settings.dtype,
		                                   .row = settings.unit},
		               world);
	else if (settings.operand_count == 1 && stat(settings.operands[0], &status) == 0 &&
	         S_ISDIR(status.st_mode))
		result = source_trace(source, settings.operands[0], settings.comm.job, world, &why);
	else
		result = source_files(source, settings.operands, settings.operand_count, world,
		                      &why);
	if (result != 0)
		return cli_error(result, "%s", why.text);
	source_thin(source, (uint32_t)settings.ops);
	return 0;
}

/* What the options say, otherwise the traced job's values, otherwise the usual ones. */
static int net_choose(struct tune *tune)
{
	const struct trace_head *head =
		tune->source.traces != NULL ? &tune->source.traces[0]->head : NULL;
	struct predict_net *net = &tune->net;

	*net = (struct predict_net){
		.world = tune->source.world,
		.aggregators = head != NULL ? head->aggregators : 1,
		.payload = head != NULL ? head->payload : MTU_DEFAULT - WIRE_IP_UDP_BYTES,
		.multicast = settings.comm.multicast,
		.rate = (double)settings.rate / 8,
	};
	if (settings.aggregators != 0)
		net->aggregators = settings.aggregators;
	if (settings.mtu != 0)
		net->payload = (uint32_t)settings.mtu - WIRE_IP_UDP_BYTES;
	if (net->payload > WIRE_PAYLOAD_MAX)
		net->payload = WIRE_PAYLOAD_MAX;
	net->channels = net->aggregators;
	if (head != NULL && net->aggregators == head->aggregators)
		net->channels = head->channels;
	if (settings.channels != 0)
		net->channels = (uint32_t)settings.channels;
	if (net->channels < net->aggregators)
		return cli_error(2, "--channels is %u: each of %u aggregators has at least one",
		                 net->channels, net->aggregators);
	for (net->window = 4;
	     net->window * 2 <= WINDOW_BYTES / net->payload && net->window < WIRE_WINDOW_MAX;)
		net->window *= 2;
	net->aggregator_rate =
		settings.aggregator_rate != 0 ? (double)settings.aggregator_rate / 8 : net->rate;
	return 0;
}

static int output(const struct tune *tune)
{
	const char *config = secure_getenv("WINNOW_CONFIG");
	char done[9000];
	int status = 0;

	if (settings.json)
		status = tune_json(tune);
	else
		tune_print(tune);
	if (status == 0)
		status = cli_flush(1);
	if (status == 0 && settings.plot != NULL)
		status = tune_plot(tune, settings.plot);
	if (status == 0 && settings.write != NULL) {
		snprintf(done, sizeof(done),
		         "Written: %s, for WINNOW_CONFIG=%s or winnow bench --config %s",
		         settings.write, settings.write, settings.write);
		status = tune_write(tune, settings.write, done);
	}
	if (status == 0 && settings.apply) {
		snprintf(done, sizeof(done),
		         "Applied: %s says block = %u; jobs that start from now on use it, those "
		         "that run keep theirs",
		         config, tune->rows[tune->best].block);
		status = tune_write(tune, config, done);
	}
	return status;
}

static int run(struct tune *tune, int argc, char **argv)
{
	bool measure = settings.local != 0 || settings.comm.aggregators != NULL;
	int status = source_open(&tune->source);

	if (status == 0)
		status = tune_names_read(tune);
	if (status == 0)
		status = tune_blocks_choose(tune);
	if (status == 0)
		status = net_choose(tune);
	/* What a job is given counts more than what we expect. */
	if (status == 0 && measure)
		status = tune_join(tune, argc, argv);
	if (status == 0 && settings.comm.rank == 0)
		status = tune_predict(tune);
	if (status == 0 && measure)
		status = tune_measure(tune);
	status = tune_leave(tune, status);
	if (status != 0 || settings.comm.rank != 0)
		return status;
	tune_judge(tune);
	status = tune_params_cost(tune);
	return status == 0 ? output(tune) : status;
}

int cli_tune(int argc, char **argv)
{
	static struct tune tune;
	int status;

	winnow_config_init(&settings.comm);
	settings.comm.aggregators = settings.comm.job = NULL; /* unless an option gives them */
	status = options_read(&options, argc, argv);
	if (status != 0)
		return status == 1 ? 0 : status;
	status = settings_check();
	if (status != 0)
		return status;
	if (settings.comm.aggregators == NULL)
		settings.comm.rank = 0; /* RANK in the environment is another job's */
	tune.settings = &settings;
	status = run(&tune, argc, argv);
	for (uint32_t i = 0; i < tune.block_count; i++)
		predict_close(&tune.rows[i].predicted);
	predict_close(&tune.used.predicted);
	free(tune.places);
	source_close(&tune.source);
	return status;
}
