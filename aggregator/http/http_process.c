// SPDX-License-Identifier: BSD-3-Clause
/* http_process.c - the process as the system sees it, under the names that Prometheus' own clients use */

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "aggregator/http/http_state.h"
#include "aggregator/limits.h"

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

/* Pages, in /proc/self/statm: of the address space, and of these in memory. */
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

void http_process(FILE *out, double start_s)
{
	struct rusage usage;
	struct rlimit limit;

	if (getrusage(RUSAGE_SELF, &usage) == 0)
		process_metric(out, "cpu_seconds_total", "counter",
		               "CPU time of all threads, user and system.",
		               seconds_of(&usage.ru_utime) + seconds_of(&usage.ru_stime));
	process_memory(out);
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		process_metric(out, "max_fds", "gauge", "Descriptors that the process may have.",
		               (double)limit.rlim_cur);
	process_metric(out, "open_fds", "gauge", "Descriptors that the process has open.",
	               limits_open());
	process_metric(out, "start_time_seconds", "gauge",
	               "When the process began, in seconds since 1970.", start_s);
}
