// SPDX-License-Identifier: BSD-3-Clause
/* limits.c - see limits.h */

#include "aggregator/limits.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 4096

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The number in a file; UINT64_MAX: there is none ("max"), or no such file. */
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
 * The least limit of the group `path` and of all above it. A container may see its own group as
 * the top of the tree while `path` is still the host's name for it: what is not there limits nothing.
 */
static uint64_t least_above(const char *top, char *path, const char *name)
{
	uint64_t limit = UINT64_MAX;
	char file[PATH_MAX];

	for (;;) {
		char *last = strrchr(path, '/');

		snprintf(file, sizeof(file), "%s%s/%s", top, path, name);
		limit = least(limit, number_in(file));
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

/* A line of /proc/self/cgroup: "4:memory:/path" in v1, "0::/path" in v2. */
static uint64_t limit_of(const char *root, char *line)
{
	char *controllers = strchr(line, ':'), *path, top[PATH_MAX];

	path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
	if (path == NULL)
		return UINT64_MAX;
	*path++ = '\0';
	controllers++;
	path[strcspn(path, "\n")] = '\0';
	if (strstr(path, "/..") != NULL) /* it lies outside of what we see of the tree */
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

static uint64_t machine_memory(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);

	return pages > 0 && bytes > 0 ? (uint64_t)pages * (uint64_t)bytes : UINT64_MAX;
}

uint64_t limits_memory(const char *root)
{
	uint64_t limit = machine_memory();
	char line[LINE_BYTES];
	FILE *file;

	snprintf(line, sizeof(line), "%s/proc/self/cgroup", root);
	file = fopen(line, "re");
	if (file == NULL)
		return limit;
	while (fgets(line, sizeof(line), file) != NULL)
		limit = least(limit, limit_of(root, line));
	fclose(file);
	return limit;
}

uint64_t limits_resident(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	uint64_t pages = 0;

	if (file == NULL)
		return 0;
	if (fscanf(file, "%*u %" SCNu64, &pages) != 1)
		pages = 0;
	fclose(file);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}
