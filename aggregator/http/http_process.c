// SPDX-License-Identifier: BSD-3-Clause
/* http_process.c - the process as the system sees it, under the names that Prometheus' own clients use */

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "aggregator/http/http_state.h"

static void process_family(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP process_%s %s\n# TYPE process_%s %s\nprocess_%s ", name, help, name,
	        type, name);
}

static double seconds_of(const struct timeval *time)
{
	return (double)time->tv_sec + (double)time->tv_usec / 1e6;
}

static void process_cpu(FILE *out)
{
	struct rusage usage;

	if (getrusage(RUSAGE_SELF, &usage) != 0)
		return;
	process_family(out, "cpu_seconds_total", "counter",
	               "CPU time of all threads, user and system.");
	fprintf(out, "%.6f\n", seconds_of(&usage.ru_utime) + seconds_of(&usage.ru_stime));
}

/* Pages, in /proc/self/statm: of the address space, and of these in memory. */
static void process_memory(FILE *out)
{
	FILE *file = fopen("/proc/self/statm", "re");
	uint64_t virtual, resident, page = (uint64_t)sysconf(_SC_PAGESIZE);

	if (file == NULL)
		return;
	if (fscanf(file, "%" SCNu64 " %" SCNu64, &virtual, &resident) == 2) {
		process_family(out, "virtual_memory_bytes", "gauge", "Address space.");
		fprintf(out, "%" PRIu64 "\n", virtual * page);
		process_family(out, "resident_memory_bytes", "gauge", "Memory in use, RSS.");
		fprintf(out, "%" PRIu64 "\n", resident * page);
	}
	fclose(file);
}

static void process_descriptors(FILE *out)
{
	DIR *folder = opendir("/proc/self/fd");
	struct rlimit limit;
	uint32_t count = 0;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		process_family(out, "max_fds", "gauge", "Descriptors that the process may have.");
		fprintf(out, "%" PRIu64 "\n", (uint64_t)limit.rlim_cur);
	}
	if (folder == NULL)
		return;
	for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
		count += entry->d_name[0] != '.';
	closedir(folder);
	process_family(out, "open_fds", "gauge", "Descriptors that the process has open.");
	fprintf(out, "%u\n", count - 1); /* one is the folder's own */
}

/* The 22nd field of /proc/self/stat, behind the name in brackets: ticks from boot. */
double http_process_start(void)
{
	FILE *file = fopen("/proc/self/stat", "re");
	struct timespec now, boot;
	char line[1024] = "", *at;
	uint64_t ticks = 0;

	if (file != NULL) {
		(void)!fgets(line, sizeof(line), file);
		fclose(file);
	}
	at = strrchr(line, ')');
	for (uint32_t field = 2; at != NULL && field < 22; field++)
		at = strchr(at + 1, ' ');
	if (at == NULL || sscanf(at, "%" SCNu64, &ticks) != 1)
		return 0;
	clock_gettime(CLOCK_REALTIME, &now);
	clock_gettime(CLOCK_BOOTTIME, &boot);
	return (double)(now.tv_sec - boot.tv_sec) + (double)(now.tv_nsec - boot.tv_nsec) / 1e9 +
	       (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

void http_process(FILE *out, double start_s)
{
	process_cpu(out);
	process_memory(out);
	process_descriptors(out);
	if (start_s > 0) {
		process_family(out, "start_time_seconds", "gauge",
		               "When the process began, in seconds since 1970.");
		fprintf(out, "%.2f\n", start_s);
	}
}
