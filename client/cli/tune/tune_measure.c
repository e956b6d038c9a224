// SPDX-License-Identifier: BSD-3-Clause
/* tune_measure.c - the operations for real, with each block size in turn: times, and bytes counted */

#include <stdlib.h>
#include <string.h>

#include "client/cli/bench/bench.h"
#include "client/cli/tune/tune.h"
#include "ebpf/wire.h"

static struct {
	struct winnow_comm *comm;
	void **tensors; /* [op_count] this worker's */
	void *recv;
	double *times, *sent, *received; /* [iters] of one block size */
	bool local;
} runner;

/* ---- before ---- */

static int tensors_make(const struct tune *tune)
{
	const struct source *source = &tune->source;
	struct why why;
	uint64_t most = 1;

	runner.tensors = cli_memory(source->op_count, sizeof(void *), "operations");
	runner.times = cli_memory(3 * tune->settings->iters, sizeof(*runner.times), "times");
	runner.sent = runner.times + tune->settings->iters;
	runner.received = runner.sent + tune->settings->iters;
	for (uint32_t op = 0; op < source->op_count; op++) {
		const struct source_op *o = &source->ops[op];

		runner.tensors[op] = source_tensor(source, op, tune->settings->comm.rank, &why);
		if (runner.tensors[op] == NULL)
			return cli_error(1, "%s", why.text);
		if (o->count * dtype_bytes(o->dtype) > most)
			most = o->count * dtype_bytes(o->dtype);
	}
	runner.recv = cli_tensor(most);
	memset(runner.recv, 0x5a, most);
	return 0;
}

/* What the job was given, for the prediction. */
static void net_learn(struct tune *tune)
{
	struct winnow_stats stats;

	winnow_comm_stats(runner.comm, &stats);
	tune->net.aggregators = cli_item_count(tune->settings->comm.aggregators);
	tune->net.channels = stats.channels;
	tune->net.payload = stats.payload;
	tune->net.window = stats.window;
	tune->net.multicast = stats.multicast == tune->net.aggregators;
	for (uint32_t op = 0; op < tune->source.op_count; op++)
		tune->source.ops[op].form = WIRE_NATIVE;
}

int tune_join(struct tune *tune, int argc, char **argv)
{
	struct winnow_config *comm = &tune->settings->comm;
	uint32_t local = (uint32_t)tune->settings->local;
	int status = 0;

	unsetenv("WINNOW_TRACE"); /* these operations are no job's */
	if (local != 0)
		status = bench_local_start(comm, local, argc, argv);
	runner.local = local != 0 && status == 0;
	if (status == 0)
		status = tensors_make(tune);
	if (status != 0 && runner.local)
		bench_local_end();
	if (status != 0)
		return status;
	if (comm->job == NULL)
		comm->job = "tune";
	comm->world = tune->source.world;
	comm->block = 256; /* each operation says its own */
	comm->wire = WINNOW_WIRE_NATIVE;
	comm->payload = tune->settings->mtu != 0 ? tune->net.payload : 0;
	cli_tells(comm);
	status = winnow_comm_create(comm, &runner.comm);
	if (status == WINNOW_ERR_ABORTED && bench_local_lost())
		return 1;
	if (status != WINNOW_OK)
		return cli_error(1, "rank %u: cannot join: %s", comm->rank, winnow_last_error());
	net_learn(tune);
	return 0;
}

int tune_leave(const struct tune *tune, int status)
{
	winnow_comm_destroy(runner.comm);
	if (runner.local)
		status = bench_local_stop(status);
	for (uint32_t op = 0; runner.tensors != NULL && op < tune->source.op_count; op++)
		free(runner.tensors[op]);
	free((void *)runner.tensors);
	free(runner.recv);
	free(runner.times);
	return status;
}

/* ---- measuring ---- */

/* All operations, one after the other. */
static int pass_run(const struct tune *tune, uint32_t block, struct bench_sums *out)
{
	int status = 0;

	*out = (struct bench_sums){0};
	for (uint32_t op = 0; op < tune->source.op_count && status == 0; op++) {
		const struct bench_op operation = {
			.send = runner.tensors[op],
			.recv = runner.recv,
			.count = tune->source.ops[op].count,
			.dtype = (enum winnow_dtype)tune->source.ops[op].dtype,
			.op = WINNOW_SUM,
			.options = {.block = block, .wire = WINNOW_WIRE_NATIVE},
		};

		status = bench_once(runner.comm, &operation, out, NULL);
	}
	return status;
}

/* Takes medians: a pass that lost something does not measure the block size. */
static int row_measure(const struct tune *tune, struct tune_row *row)
{
	uint64_t iters = tune->settings->iters;
	double ops = tune->source.op_count;
	struct bench_sums pass;
	int status = 0;

	for (uint64_t i = 0; i < tune->settings->warmup && status == 0; i++)
		status = pass_run(tune, row->block, &pass);
	for (uint64_t i = 0; i < iters && status == 0; i++) {
		status = pass_run(tune, row->block, &pass);
		runner.times[i] = pass.time_us / 1e6;
		runner.sent[i] = pass.sent_bytes;
		runner.received[i] = pass.received_bytes;
		row->retransmits += pass.retransmits;
	}
	if (status != 0)
		return status;
	row->measured_s = median(runner.times, iters) / ops;
	row->counted_sent = median(runner.sent, iters) / ops;
	row->counted_received = median(runner.received, iters) / ops;
	return 0;
}

int tune_measure(struct tune *tune)
{
	bool shows = tune->settings->comm.rank == 0;
	int status = 0;

	for (uint32_t i = 0; i < tune->block_count && status == 0; i++) {
		if (shows)
			cli_progress("measuring %u/%u", i + 1, tune->block_count);
		status = row_measure(tune, &tune->rows[i]);
	}
	if (shows)
		cli_progress("%s", "");
	return status;
}
