// SPDX-License-Identifier: BSD-3-Clause
/* bench_once.c - one operation, timed and counted */

#include "bitmap/net/clock.h"
#include "client/cli/bench/bench_state.h"
#include "client/cli/cli.h"

static int call_failed(const struct winnow_comm *comm, const char *what)
{
	cli_progress("%s", "");
	return cli_error(1, "rank %u: %s: %s", winnow_comm_rank(comm), what, winnow_last_error());
}

int bench_once(struct winnow_comm *comm, const struct bench_op *op, struct bench_sums *sums,
               struct winnow_op_stats *stats)
{
	struct winnow_stats before, after;
	struct winnow_request *request;
	uint64_t start_ns;
	int result;

	/* An empty operation makes workers start together. */
	if (winnow_allreduce(op->recv, op->recv, 0, WINNOW_I32, WINNOW_SUM, comm) != WINNOW_OK)
		return call_failed(comm, "starting line");
	winnow_comm_stats(comm, &before);
	start_ns = clock_ns();
	result = winnow_allreduce_async(op->send, op->recv, op->count, op->dtype, op->op,
	                                &op->options, comm, &request);
	if (result == WINNOW_OK)
		result = winnow_wait(request, -1, stats);
	sums->time_us += (double)(clock_ns() - start_ns) / 1e3;
	if (result != WINNOW_OK)
		return call_failed(comm, "allreduce"); /* the communicator frees the request */
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
