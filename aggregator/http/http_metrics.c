// SPDX-License-Identifier: BSD-3-Clause
/* http_metrics.c - /metrics: Prometheus text, version 0.0.4 */

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/http/http_impl.h"
#include "aggregator/log.h"

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
	const char *label; /* beside the job's */
	const char *help;  /* NULL: as the one before */
	size_t offset;     /* in struct channel_stats */
};

#define METRIC(name, label, field, help)                                                           \
	{                                                                                          \
		name, label, help, offsetof(struct channel_stats, field)                           \
	}

/* Counters of running jobs; a job's series ends with it. Those of one name follow each other. */
static const struct job_metric job_metrics[] = {
	METRIC("mismatches_total", "", mismatches,
               "Operations that failed because workers disagreed."),
	METRIC("tensor_bytes_total", "", tensor_bytes,
               "Bytes of one worker's tensors, zeros included."),
	METRIC("wire_bytes_total", ",direction=\"received\"", received_bytes,
               "UDP payload bytes; what is sent to a group counts once."),
	METRIC("wire_bytes_total", ",direction=\"sent\"", sent_bytes, NULL),
	METRIC("blocks_owned_total", "", blocks_owned,
               "Blocks that each worker had non-zero, of all workers together."),
	METRIC("pushes_total", "", pushes, "Frames of data accepted from workers."),
	METRIC("fast_pushes_total", ",by=\"kernel\"", fast_added,
               "Of the frames that the XDP program may add to: PUSHes that it has added, and those "
               "that came to user space."),
	METRIC("fast_pushes_total", ",by=\"user\"", fast_missed, NULL),
	METRIC("results_total", "", results, "Frames of sums completed."),
	METRIC("passed_through_total", "", passed_through, "Frames that had one contributor."),
	METRIC("retransmits_total", ",reason=\"result\"", result_resends,
               "Packets sent again: a sum or a plan to a worker that asked, or asking it for "
               "data."),
	METRIC("retransmits_total", ",reason=\"plan\"", plan_resends, NULL),
	METRIC("retransmits_total", ",reason=\"want\"", wants, NULL),
};

static void job_counters(FILE *out, const struct snapshot *now)
{
	for (size_t m = 0; m < sizeof(job_metrics) / sizeof(job_metrics[0]); m++) {
		const struct job_metric *metric = &job_metrics[m];

		if (metric->help != NULL)
			family(out, metric->name, "counter", metric->help);
		for (uint32_t i = 0; i < now->job_count; i++) {
			uint64_t value;

			memcpy(&value, (const uint8_t *)&now->jobs[i].stats + metric->offset,
			       sizeof(value));
			fprintf(out, "winnow_%s{job=\"%s\"%s} %" PRIu64 "\n", metric->name,
			        now->jobs[i].view.name, metric->label, value);
		}
	}
}

/* Numbers that are not a plain field of the statistics. */
static void job_sums(FILE *out, const struct snapshot *now)
{
	family(out, "allreduce_total", "counter", "Operations that all workers have finished.");
	for (uint32_t i = 0; i < now->job_count; i++)
		fprintf(out, "winnow_allreduce_total{job=\"%s\"} %" PRIu64 "\n",
		        now->jobs[i].view.name, now->jobs[i].operations);
	family(out, "blocks_total", "counter",
	       "Blocks of the tensors reduced: nonzero if any worker had it so.");
	for (uint32_t i = 0; i < now->job_count; i++) {
		const struct channel_stats *stats = &now->jobs[i].stats;
		const char *name = now->jobs[i].view.name;

		fprintf(out, "winnow_blocks_total{job=\"%s\",kind=\"nonzero\"} %" PRIu64 "\n", name,
		        stats->blocks_nonzero);
		fprintf(out, "winnow_blocks_total{job=\"%s\",kind=\"zero\"} %" PRIu64 "\n", name,
		        stats->blocks - stats->blocks_nonzero);
	}
	family(out, "straggler_seconds_total", "counter",
	       "So long operations waited for this worker alone to call them.");
	for (uint32_t i = 0; i < now->job_count; i++)
		for (uint32_t rank = 0; rank < now->jobs[i].view.world; rank++)
			fprintf(out,
			        "winnow_straggler_seconds_total{job=\"%s\",rank=\"%u\"} %.6f\n",
			        now->jobs[i].view.name, rank,
			        (double)now->jobs[i].late_us[rank] / 1e6);
}

static void job_times(FILE *out, const struct snapshot *now)
{
	family(out, "allreduce_duration_seconds", "histogram",
	       "Of operations, from the first worker's call until all have the result.");
	for (uint32_t i = 0; i < now->job_count; i++) {
		const struct job_snapshot *job = &now->jobs[i];
		const char *name = job->view.name;
		uint64_t count = 0;

		for (uint32_t k = 0; k < CHANNEL_TIMES; k++) {
			count += job->times[k];
			fprintf(out,
			        "winnow_allreduce_duration_seconds_bucket{job=\"%s\",le=\"%g\"} "
			        "%" PRIu64 "\n",
			        name, channel_times_us[k] / 1e6, count);
		}
		count += job->times[CHANNEL_TIMES];
		fprintf(out,
		        "winnow_allreduce_duration_seconds_bucket{job=\"%s\",le=\"+Inf\"} %" PRIu64
		        "\n",
		        name, count);
		fprintf(out, "winnow_allreduce_duration_seconds_sum{job=\"%s\"} %.6f\n", name,
		        (double)job->times_us / 1e6);
		fprintf(out, "winnow_allreduce_duration_seconds_count{job=\"%s\"} %" PRIu64 "\n",
		        name, count);
	}
}

static void job_gauges(FILE *out, const struct snapshot *now)
{
	static const char *const gauges[][2] = {
		{"job_workers", "Workers that the job has."},
		{"job_members", "Workers that have joined and not left."},
		{"job_memory_bytes", "Slots and tables, reserved."},
		{"job_slots", "Frames that may be under way."},
		{"job_slots_in_use", "Frames under way."},
		{"job_wait_seconds", "For so long some worker has kept the others waiting."},
	};

	for (size_t g = 0; g < sizeof(gauges) / sizeof(gauges[0]); g++) {
		family(out, gauges[g][0], "gauge", gauges[g][1]);
		for (uint32_t i = 0; i < now->job_count; i++) {
			const struct job_snapshot *job = &now->jobs[i];
			const double values[] = {
				job->view.world,
				job->view.joined,
				(double)job->view.bytes,
				job->slots,
				job->slots_used,
				(double)job->busy.wait.stall.waited_us / 1e6,
			};

			fprintf(out, "winnow_%s{job=\"%s\"} %.15g\n", gauges[g][0], job->view.name,
			        values[g]);
		}
	}
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
	single(out, "memory_limit_bytes", "gauge",
	       "What they may be, together: --bytes-max, or what the container's memory leaves.",
	       t->bytes_max);
	single(out, "draining", "gauge", "1 when no new jobs are taken.", t->draining);
	single(out, "jobs_started_total", "counter", "Jobs that have begun.", t->jobs_started);
	single(out, "jobs_finished_total", "counter", "Jobs that all workers left.",
	       t->jobs_finished);
	single(out, "jobs_failed_total", "counter", "Jobs that ended with an error.",
	       t->jobs_failed);
	family(out, "joins_refused_total", "counter", "Workers that were not let in, by reason.");
	for (uint32_t i = 0; i < JOBS_REFUSALS; i++)
		fprintf(out, "winnow_joins_refused_total{reason=\"%s\"} %" PRIu64 "\n",
		        jobs_refusals[i], t->refused[i]);
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
	single(out, "log_lines_lost_total", "counter",
	       "Lines of the log that nobody will read: what reads stderr was too slow, or is "
	       "gone.",
	       log_lines_lost());
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
		job_counters(out, &now);
		job_sums(out, &now);
		job_times(out, &now);
		job_gauges(out, &now);
		snapshot_free(&now);
	}
	fclose(out);
	return text;
}
