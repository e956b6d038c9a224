// SPDX-License-Identifier: BSD-3-Clause
/* http_metrics.c - /metrics: Prometheus text, version 0.0.4 */

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/http_impl.h"

static void family(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP winnow_%s %s\n# TYPE winnow_%s %s\n", name, help, name, type);
}

static void single(FILE *out, const char *name, const char *type, const char *help, uint64_t value)
{
	family(out, name, type, help);
	fprintf(out, "winnow_%s %" PRIu64 "\n", name, value);
}

struct job_metric {
	const char *name;
	const char *help;
	size_t offset; /* in struct channel_stats */
};

#define METRIC(name, field, help)                                                                  \
	{                                                                                          \
		name, help, offsetof(struct channel_stats, field)                                  \
	}

/* Counters of running jobs; a job's series ends with it. */
static const struct job_metric job_metrics[] = {
	METRIC("allreduce_total", operations,
               "Operations that all workers have finished, per channel."),
	METRIC("mismatches_total", mismatches, "Operations that failed because workers disagreed."),
	METRIC("tensor_bytes_total", tensor_bytes,
               "Bytes of one worker's tensors, zeros included."),
	METRIC("blocks_total", blocks, "Blocks of the tensors reduced."),
	METRIC("blocks_nonzero_total", blocks_nonzero, "Blocks that any worker had non-zero."),
	METRIC("blocks_owned_total", blocks_owned,
               "Blocks that each worker had non-zero, of all workers together."),
	METRIC("pushes_total", pushes, "Frames of data accepted from workers."),
	METRIC("results_total", results, "Frames of sums completed."),
	METRIC("passed_through_total", passed_through, "Frames that had one contributor."),
	METRIC("result_resends_total", result_resends, "Sums sent again to a worker that asked."),
	METRIC("wants_total", wants, "Requests to workers for data that did not arrive."),
	METRIC("received_bytes_total", received_bytes, "UDP payload bytes received."),
	METRIC("sent_bytes_total", sent_bytes, "UDP payload bytes sent; to a group counts once."),
};

static void jobs_metrics(FILE *out, const struct snapshot *now)
{
	for (size_t m = 0; m < sizeof(job_metrics) / sizeof(job_metrics[0]); m++) {
		family(out, job_metrics[m].name, "counter", job_metrics[m].help);
		for (uint32_t i = 0; i < now->job_count; i++) {
			uint64_t value;

			memcpy(&value, (const uint8_t *)&now->jobs[i].stats + job_metrics[m].offset,
			       sizeof(value));
			fprintf(out, "winnow_%s{job=\"%s\"} %" PRIu64 "\n", job_metrics[m].name,
			        now->jobs[i].view.name, value);
		}
	}
	family(out, "job_members", "gauge", "Workers that have joined and not left.");
	for (uint32_t i = 0; i < now->job_count; i++)
		fprintf(out, "winnow_job_members{job=\"%s\"} %u\n", now->jobs[i].view.name,
		        now->jobs[i].view.joined);
	family(out, "job_slots", "gauge", "Frames that may be under way.");
	for (uint32_t i = 0; i < now->job_count; i++)
		fprintf(out, "winnow_job_slots{job=\"%s\"} %u\n", now->jobs[i].view.name,
		        now->jobs[i].slots);
	family(out, "job_slots_in_use", "gauge", "Frames under way.");
	for (uint32_t i = 0; i < now->job_count; i++)
		fprintf(out, "winnow_job_slots_in_use{job=\"%s\"} %u\n", now->jobs[i].view.name,
		        now->jobs[i].slots_used);
	family(out, "job_wait_seconds", "gauge",
	       "For so long some worker has kept the others waiting.");
	for (uint32_t i = 0; i < now->job_count; i++)
		fprintf(out, "winnow_job_wait_seconds{job=\"%s\"} %.6f\n", now->jobs[i].view.name,
		        (double)now->jobs[i].busy.wait.stall.waited_us / 1e6);
}

static void drop_metrics(FILE *out, const struct snapshot *now)
{
	family(out, "packets_dropped_total", "counter",
	       "Packets received and not used, by reason.");
	for (uint32_t d = 1; d < WIRE_DROP_COUNT; d++)
		fprintf(out, "winnow_packets_dropped_total{reason=\"%s\"} %" PRIu64 "\n",
		        drop_name((enum wire_drop)d), now->drops[d]);
}

static void fast_metrics(FILE *out, const struct snapshot *now)
{
	family(out, "xdp_packets_total", "counter",
	       "Datagrams that the XDP program saw, by what it did; those that it dropped are in "
	       "packets_dropped_total.");
	for (uint32_t i = FAST_COUNT_PASSED; i < FAST_COUNTER_COUNT; i++)
		fprintf(out, "winnow_xdp_packets_total{verdict=\"%s\"} %" PRIu64 "\n",
		        fast_counter_name((enum fast_counter)i), now->fast[i]);
}

static void totals_metrics(FILE *out, const struct snapshot *now)
{
	const struct jobs_totals *t = &now->totals;
	const struct net_stats *net = &now->data.net;

	single(out, "jobs", "gauge", "Jobs that are here.", t->jobs);
	single(out, "connections", "gauge", "Control connections.", t->peers);
	single(out, "memory_reserved_bytes", "gauge", "Slots and tables of all jobs.", t->bytes);
	single(out, "draining", "gauge", "1 when no new jobs are taken.", t->draining);
	single(out, "jobs_started_total", "counter", "Jobs that have begun.", t->jobs_started);
	single(out, "jobs_finished_total", "counter", "Jobs that all workers left.",
	       t->jobs_finished);
	single(out, "jobs_failed_total", "counter", "Jobs that ended with an error.",
	       t->jobs_failed);
	single(out, "joins_refused_total", "counter", "Workers that were not let in.",
	       t->joins_refused);
	single(out, "packets_received_total", "counter", "Datagrams.", net->received);
	single(out, "packets_received_bytes_total", "counter", "UDP payload bytes.",
	       net->received_bytes);
	single(out, "packets_sent_total", "counter", "Datagrams; to a group counts once.",
	       net->sent);
	single(out, "packets_sent_bytes_total", "counter", "UDP payload bytes.", net->sent_bytes);
	single(out, "packets_send_errors_total", "counter", "Datagrams that the system refused.",
	       net->tx_errors);
	single(out, "packets_unsent_total", "counter",
	       "Datagrams given up: the network stayed full.", now->data.unsent);
	single(out, "net_tx_waits_total", "counter", "Times that the network was full.",
	       net->tx_waits);
	single(out, "net_rx_errors_total", "counter",
	       "dpdk: frames that were damaged or fragmented, or that there was no room for.",
	       net->rx_errors);
	single(out, "net_rx_others_total", "counter",
	       "dpdk: frames that were not for winnowd: other protocols, addresses, ports.",
	       net->rx_others);
}

char *http_metrics(const struct http_sources *sources)
{
	struct snapshot now;
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	if (out == NULL)
		return NULL;
	if (snapshot_take(sources, &now)) {
		family(out, "build_info", "gauge", "What this is.");
		fprintf(out, "winnow_build_info{version=\"%s\",isa=\"%s\",datapath=\"%s\"} 1\n",
		        WINNOW_VERSION, bitmap_best()->name, http_datapath(sources));
		totals_metrics(out, &now);
		drop_metrics(out, &now);
		if (sources->offload != NULL)
			fast_metrics(out, &now);
		jobs_metrics(out, &now);
		free(now.jobs);
	}
	fclose(out);
	return text;
}
