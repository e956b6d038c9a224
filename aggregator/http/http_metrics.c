// SPDX-License-Identifier: BSD-3-Clause
/* http_metrics.c - /metrics: Prometheus text, version 0.0.4 */

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "aggregator/http/http_state.h"
#include "aggregator/limits.h"

static void family_open(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP winnow_%s %s\n# TYPE winnow_%s %s\n", name, help, name, type);
}

static void value_print(FILE *out, const struct http_number *number, const void *of)
{
	uint64_t value = http_number(number, of);

	if (number->kind == NUMBER_SECONDS || number->kind == NUMBER_TIME)
		fprintf(out, " %.15g\n", (double)value / 1e6);
	else
		fprintf(out, " %" PRIu64 "\n", value);
}

static void number_family(FILE *out, const struct http_number *n)
{
	bool counter = n->kind == NUMBER_COUNTER || n->kind == NUMBER_TIME;

	if (n->help != NULL)
		family_open(out, n->metric, counter ? "counter" : "gauge", n->help);
}

static void numbers_print(FILE *out, const struct http_number list[], const struct snapshot *now,
                          bool of_jobs)
{
	for (const struct http_number *n = list; n->bytes > 0; n++) {
		number_family(out, n);
		if (n->metric == NULL)
			continue;
		if (!of_jobs) {
			fprintf(out, "winnow_%s", n->metric);
			value_print(out, n, now);
		}
		for (uint32_t i = 0; of_jobs && i < now->job_count; i++) {
			if (!now->jobs[i].series)
				continue;
			fprintf(out, "winnow_%s{job=\"%s\"%s}", n->metric, now->jobs[i].name,
			        n->label);
			value_print(out, n, &now->jobs[i]);
		}
	}
}

static void worker_numbers(FILE *out, const struct snapshot *now)
{
	for (const struct http_number *n = http_worker_numbers; n->bytes > 0; n++) {
		number_family(out, n);
		for (uint32_t i = 0; i < now->job_count; i++) {
			const struct job_snapshot *job = &now->jobs[i];

			for (uint32_t rank = 0; job->series && rank < job->view.world; rank++) {
				struct worker_snapshot worker;

				if (worker_elsewhere(&job->workers[rank]) ||
				    (!snapshot_worker(job, rank, &worker) &&
				     n->at < offsetof(struct worker_snapshot, waits)))
					continue;
				fprintf(out, "winnow_%s{job=\"%s\",rank=\"%u\"%s}", n->metric,
				        job->name, rank, n->label);
				value_print(out, n, &worker);
			}
		}
	}
}

static void job_times(FILE *out, const struct snapshot *now)
{
	family_open(out, "allreduce_duration_seconds", "histogram",
	            "Duration of operations, from the first worker's call until all workers have "
	            "the result.");
	for (uint32_t i = 0; i < now->job_count; i++) {
		const struct job_snapshot *job = &now->jobs[i];
		const char *name = job->name;
		uint64_t count = 0;

		if (!job->series)
			continue;
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

static void drop_metrics(FILE *out, const struct snapshot *now)
{
	family_open(out, "packets_dropped_total", "counter",
	            "Received packets that were not used, by reason.");
	for (uint32_t d = 1; d < WIRE_DROP_COUNT; d++)
		fprintf(out, "winnow_packets_dropped_total{reason=\"%s\"} %" PRIu64 "\n",
		        fast_counter_name(d), now->drops[d]);
}

static void fast_metrics(FILE *out, const struct snapshot *now)
{
	family_open(out, "xdp_packets_total", "counter",
	            "Datagrams that the XDP program received, by what it did with them; dropped "
	            "ones are in packets_dropped_total.");
	for (uint32_t i = FAST_COUNT_PASSED; i < FAST_COUNTER_COUNT; i++)
		fprintf(out, "winnow_xdp_packets_total{verdict=\"%s\"} %" PRIu64 "\n",
		        fast_counter_name(i), now->fast[i]);
}

static void refusal_metrics(FILE *out, const struct jobs_totals *totals)
{
	family_open(out, "joins_refused_total", "counter", "Workers that were refused, by reason.");
	for (uint32_t i = 0; i < JOBS_REFUSALS; i++)
		fprintf(out, "winnow_joins_refused_total{reason=\"%s\"} %" PRIu64 "\n",
		        jobs_refusals[i], totals->refused[i]);
}

/* ---- the process, under the names that Prometheus' own clients use ---- */

static void process_metric(FILE *out, const char *name, const char *type, const char *help,
                           double value)
{
	fprintf(out, "# HELP process_%s %s\n# TYPE process_%s %s\nprocess_%s %.15g\n", name, help,
	        name, type, name, value);
}

static double seconds_of(const struct timeval *time)
{
	return (double)time->tv_sec + (double)time->tv_usec / 1e6;
}

/* /proc/self/statm counts pages: those of the address space, and those of them in memory. */
static void process_memory(FILE *out)
{
	FILE *file = fopen("/proc/self/statm", "re");
	uint64_t virtual, resident, page = (uint64_t)sysconf(_SC_PAGESIZE);

	if (file == NULL)
		return;
	if (fscanf(file, "%" SCNu64 " %" SCNu64, &virtual, &resident) == 2) {
		process_metric(out, "virtual_memory_bytes", "gauge", "Address space.",
		               (double)(virtual * page));
		process_metric(out, "resident_memory_bytes", "gauge", "Memory in use, RSS.",
		               (double)(resident * page));
	}
	fclose(file);
}

static void process_metrics(FILE *out, double start_s)
{
	struct rusage usage;
	struct rlimit limit;

	if (getrusage(RUSAGE_SELF, &usage) == 0)
		process_metric(out, "cpu_seconds_total", "counter",
		               "CPU time of all threads, user and system.",
		               seconds_of(&usage.ru_utime) + seconds_of(&usage.ru_stime));
	process_memory(out);
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		process_metric(out, "max_fds", "gauge",
		               "Most descriptors that the process may open.",
		               (double)limit.rlim_cur);
	process_metric(out, "open_fds", "gauge", "Descriptors that the process has open.",
	               limits_open());
	process_metric(out, "start_time_seconds", "gauge",
	               "When the process began, in seconds since 1970.", start_s);
}

/* ---- all ---- */

char *http_metrics(const struct http_sources *sources, const struct snapshot *now)
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	if (out == NULL)
		return NULL;
	family_open(out, "build_info", "gauge", "Version, instruction set and data path.");
	fprintf(out, "winnow_build_info{version=\"%s\",isa=\"%s\",datapath=\"%s\"} 1\n",
	        WINNOW_VERSION, bitmap_best()->name, http_datapath(sources));
	numbers_print(out, http_numbers, now, false);
	refusal_metrics(out, &now->totals);
	numbers_print(out, http_packet_numbers, now, false);
	drop_metrics(out, now);
	if (sources->offload != NULL)
		fast_metrics(out, now);
	numbers_print(out, http_job_numbers, now, true);
	worker_numbers(out, now);
	job_times(out, now);
	process_metrics(out, (double)(sources->epoch_us + sources->start_us) / 1e6);
	fclose(out);
	return text;
}
