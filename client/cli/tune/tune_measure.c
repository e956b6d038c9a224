// SPDX-License-Identifier: BSD-3-Clause
/* tune_measure.c - the operations for real, with each block size in turn: times, and bytes counted */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/bench/bench.h"
#include "aggregator/net/clock.h"
#include "client/cli/median.h"
#include "client/cli/tune/tune.h"

struct tune_runner {
	struct tune *tune;
	struct winnow_comm *comm;
	void **tensors; /* [op_count] this worker's */
	void *recv;
	double *times, *sent, *received; /* [iters] of one block size */
	bool local;
};

static void progress(const struct tune *tune, uint64_t done, uint64_t of)
{
	if (tune->settings->comm.rank != 0 || !isatty(STDERR_FILENO))
		return;
	if (done < of)
		fprintf(stderr, "\r\033[Kmeasuring %llu/%llu", (unsigned long long)done + 1,
		        (unsigned long long)of);
	else
		fprintf(stderr, "\r\033[K");
	fflush(stderr);
}

static int failed(const struct tune *tune, const char *what)
{
	progress(tune, 1, 0);
	return cli_error(1, "rank %u: %s: %s", tune->settings->comm.rank, what,
	                 winnow_last_error());
}

/* ---- before ---- */

static int tensors_make(struct tune_runner *runner)
{
	const struct tune *tune = runner->tune;
	const struct source *source = &tune->source;
	struct why why;
	uint64_t most = 1;

	runner->tensors = calloc(source->op_count, sizeof(void *));
	runner->times = calloc(3 * tune->settings->iters, sizeof(*runner->times));
	if (runner->tensors == NULL || runner->times == NULL)
		return cli_error(1, "out of memory");
	runner->sent = runner->times + tune->settings->iters;
	runner->received = runner->sent + tune->settings->iters;
	for (uint32_t op = 0; op < source->op_count; op++) {
		const struct source_op *o = &source->ops[op];

		runner->tensors[op] = source_tensor(source, op, tune->settings->comm.rank, &why);
		if (runner->tensors[op] == NULL)
			return cli_error(1, "%s", why.text);
		if (o->count * dtype_bytes(o->dtype) > most)
			most = o->count * dtype_bytes(o->dtype);
	}
	if (posix_memalign(&runner->recv, 4096, most) != 0)
		return cli_error(1, "no memory for a result of %llu bytes",
		                 (unsigned long long)most);
	memset(runner->recv, 0x5a, most);
	return 0;
}

static void config_fill(const struct tune *tune, struct winnow_config *config)
{
	if (config->job == NULL)
		config->job = "tune";
	config->world = tune->source.world;
	config->block = 256; /* each operation says its own */
	config->wire = WINNOW_WIRE_NATIVE;
	config->payload = tune->settings->mtu != 0 ? tune->net.payload : 0;
}

/* What the job was given, for the prediction. */
static void net_learn(struct tune *tune, struct winnow_comm *comm)
{
	struct winnow_stats stats;

	winnow_comm_stats(comm, &stats);
	tune->net.aggregators = 1;
	for (const char *c = tune->settings->comm.aggregators; *c != '\0'; c++)
		tune->net.aggregators += *c == ',';
	tune->net.channels = stats.channels;
	tune->net.payload = stats.payload;
	tune->net.window = stats.window;
	tune->net.multicast = stats.multicast == tune->net.aggregators;
	for (uint32_t op = 0; op < tune->source.op_count; op++)
		tune->source.ops[op].fixed32 = false;
}

int tune_join(struct tune *tune, int argc, char **argv, struct tune_runner **out)
{
	struct tune_settings *s = tune->settings;
	struct tune_runner *runner = calloc(1, sizeof(*runner));
	int status;

	if (runner == NULL)
		return cli_error(1, "out of memory");
	*out = runner;
	runner->tune = tune;
	unsetenv("WINNOW_TRACE"); /* these operations are no job's */
	if (s->local != 0) {
		status = bench_local_begin((uint32_t)s->local, argc, argv, &s->comm.aggregators);
		if (status != 0)
			return status;
		runner->local = true;
		s->comm.insecure_no_key = true;
		s->comm.key = s->comm.key_file = NULL;
	}
	status = tensors_make(runner);
	if (status != 0)
		return status;
	config_fill(tune, &s->comm);
	if (winnow_comm_create(&s->comm, &runner->comm) != WINNOW_OK)
		return failed(tune, "cannot join");
	net_learn(tune, runner->comm);
	return 0;
}

void tune_leave(struct tune_runner *runner)
{
	if (runner == NULL)
		return;
	winnow_comm_destroy(runner->comm);
	if (runner->local)
		bench_local_stop();
	for (uint32_t op = 0; runner->tensors != NULL && op < runner->tune->source.op_count; op++)
		free(runner->tensors[op]);
	free((void *)runner->tensors);
	free(runner->recv);
	free(runner->times);
	free(runner);
}

/* ---- measuring ---- */

/* What one pass over all operations took. */
struct pass {
	double time_s, sent, received;
	uint64_t retransmits;
};

/* One operation; an empty one before it is the starting line. */
static int operation(struct tune_runner *runner, uint32_t op, uint32_t block, struct pass *sum)
{
	const struct source_op *o = &runner->tune->source.ops[op];
	struct winnow_options options = {.block = block, .wire = WINNOW_WIRE_NATIVE};
	struct winnow_stats before, after;
	struct winnow_request *request;
	uint64_t start_ns;

	if (winnow_allreduce(runner->recv, runner->recv, 0, WINNOW_I32, WINNOW_SUM, runner->comm) !=
	    WINNOW_OK)
		return failed(runner->tune, "starting line");
	winnow_comm_stats(runner->comm, &before);
	start_ns = clock_ns();
	if (winnow_allreduce_async(runner->tensors[op], runner->recv, o->count,
	                           (enum winnow_dtype)o->dtype, WINNOW_SUM, &options, runner->comm,
	                           &request) != WINNOW_OK ||
	    winnow_wait(request, -1, NULL) != WINNOW_OK)
		return failed(runner->tune,
		              "allreduce"); /* what is left of it goes with the communicator */
	sum->time_s += (double)(clock_ns() - start_ns) / 1e9;
	winnow_request_free(&request);
	winnow_comm_stats(runner->comm, &after);
	sum->sent += (double)(after.sent_bytes - before.sent_bytes);
	sum->received += (double)(after.received_bytes - before.received_bytes);
	sum->retransmits += after.retransmits - before.retransmits;
	return 0;
}

static int pass_run(struct tune_runner *runner, uint32_t block, struct pass *out)
{
	int status = 0;

	*out = (struct pass){0};
	for (uint32_t op = 0; op < runner->tune->source.op_count && status == 0; op++)
		status = operation(runner, op, block, out);
	return status;
}

/* Takes medians: a pass that lost something does not measure the block size. */
static int row_measure(struct tune_runner *runner, struct tune_row *row)
{
	const struct tune *tune = runner->tune;
	uint64_t iters = tune->settings->iters;
	double ops = tune->source.op_count;
	struct pass pass;
	int status = 0;

	for (uint64_t i = 0; i < tune->settings->warmup && status == 0; i++)
		status = pass_run(runner, row->block, &pass);
	for (uint64_t i = 0; i < iters && status == 0; i++) {
		status = pass_run(runner, row->block, &pass);
		runner->times[i] = pass.time_s;
		runner->sent[i] = pass.sent;
		runner->received[i] = pass.received;
		row->retransmits += pass.retransmits;
	}
	if (status != 0)
		return status;
	row->measured_s = median(runner->times, iters) / ops;
	row->counted_sent = median(runner->sent, iters) / ops;
	row->counted_received = median(runner->received, iters) / ops;
	return 0;
}

int tune_measure(struct tune *tune, struct tune_runner *runner)
{
	int status = 0;

	for (uint32_t i = 0; i < tune->block_count && status == 0; i++) {
		progress(tune, i, tune->block_count);
		status = row_measure(runner, &tune->rows[i]);
	}
	progress(tune, 1, 0);
	return status;
}
