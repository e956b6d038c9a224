// SPDX-License-Identifier: BSD-3-Clause
/* limits.c - see limits.h */

#include "aggregator/limits.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <uv.h>

#include "aggregator/log.h"

#define LINE_BYTES 4096
#define CONNECTIONS_MIN 8

static uint64_t limit_least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The number in a file; UINT64_MAX if it has none ("max"), or if there is no such file. */
static uint64_t number_in(const char *path)
{
	FILE *file = fopen(path, "re");
	uint64_t value;

	if (file == NULL)
		return UINT64_MAX;
	if (fscanf(file, "%" SCNu64, &value) != 1)
		value = UINT64_MAX;
	fclose(file);
	return value;
}

/*
 * The least limit of the group `path` and all groups above it. A container may see its own group as
 * the top of the tree while `path` is still the host's name for it, so a group that does not exist
 * has no limit.
 */
static uint64_t least_above(const char *top, char *path, const char *name)
{
	uint64_t limit = UINT64_MAX;
	char file[PATH_MAX];

	for (;;) {
		char *last = strrchr(path, '/');

		snprintf(file, sizeof(file), "%s%s/%s", top, path, name);
		limit = limit_least(limit, number_in(file));
		if (last == NULL)
			return limit;
		*last = '\0';
	}
}

static bool lists_memory(const char *controllers)
{
	const char *at = strstr(controllers, "memory");

	return at != NULL && (at == controllers || at[-1] == ',') &&
	       (at[6] == ',' || at[6] == '\0');
}

/* Reads a line of /proc/self/cgroup: "4:memory:/path" in v1, "0::/path" in v2. */
static uint64_t limit_of(const char *root, char *line)
{
	char *controllers = strchr(line, ':'), *path, top[PATH_MAX];

	path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
	if (path == NULL)
		return UINT64_MAX;
	*path++ = '\0';
	controllers++;
	path[strcspn(path, "\n")] = '\0';
	if (strstr(path, "/..") != NULL) /* outside the tree that we can see */
		*path = '\0';
	if (lists_memory(controllers)) {
		snprintf(top, sizeof(top), "%s/sys/fs/cgroup/memory", root);
		return least_above(top, path, "memory.limit_in_bytes");
	}
	if (*controllers != '\0')
		return UINT64_MAX;
	snprintf(top, sizeof(top), "%s/sys/fs/cgroup", root);
	return least_above(top, path, "memory.max");
}

uint64_t limits_memory(const char *root)
{
	uint64_t limit = uv_get_total_memory();
	char line[LINE_BYTES];
	FILE *file;

	snprintf(line, sizeof(line), "%s/proc/self/cgroup", root);
	file = fopen(line, "re");
	if (file == NULL)
		return limit;
	while (fgets(line, sizeof(line), file) != NULL)
		limit = limit_least(limit, limit_of(root, line));
	fclose(file);
	return limit;
}

uint64_t limits_bytes(uint64_t preset, uint64_t kernel_bytes)
{
	uint64_t limit = limits_memory(""), own, room;
	size_t resident = 0;

	(void)uv_resident_set_memory(&resident);
	own = resident + kernel_bytes;
	/* The rest is for connections, sockets and the kernel. */
	room = limit > own ? (limit - own) / 4 * 3 : 0;
	if (room >= preset)
		return preset;
	log_event("info", "memory",
	          LOG_FIELDS(LOG_NUMBER("limit", limit), LOG_NUMBER("bytes_max", room)),
	          "the container or machine has no more memory for jobs; --bytes-max overrides it");
	return room;
}

/* ---- descriptors ---- */

uint32_t limits_open(void)
{
	DIR *folder = opendir("/proc/self/fd");
	const struct dirent *entry;
	uint32_t count = 0;

	if (folder == NULL)
		return 0;
	while ((entry = readdir(folder)) != NULL)
		count += entry->d_name[0] != '.';
	closedir(folder);
	return count - 1; /* the folder's own */
}

uint32_t limits_descriptors(uint32_t wanted)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return wanted;
	if (limit.rlim_cur < wanted) {
		struct rlimit more = {
			.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted,
			.rlim_max = limit.rlim_max,
		};

		if (setrlimit(RLIMIT_NOFILE, &more) == 0) /* a sandbox may forbid it */
			limit = more;
	}
	return limit.rlim_cur < wanted ? (uint32_t)limit.rlim_cur : wanted;
}

int limits_connections(uint32_t wanted, uint32_t others, uint32_t *out, struct why *why)
{
	uint32_t granted;

	others += limits_open();
	granted = limits_descriptors(others + wanted);
	if (granted >= others + wanted) {
		*out = wanted;
		return 0;
	}
	if (granted < others + CONNECTIONS_MIN)
		return why_set(
			why, -EMFILE,
			"%u descriptors may be open, but at least %u are needed: raise ulimit "
			"-n (LimitNOFILE)",
			granted, others + CONNECTIONS_MIN);
	*out = granted - others;
	log_event("warn", "few_descriptors",
	          LOG_FIELDS(LOG_NUMBER("limit", granted), LOG_NUMBER("connections_max", *out),
	                     LOG_NUMBER("wanted", wanted)),
	          "raise ulimit -n (LimitNOFILE), or lower --connections-max");
	return 0;
}
