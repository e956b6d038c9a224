// SPDX-License-Identifier: BSD-3-Clause
/* tune_apply.c - --write, --apply: the best block size into a file of options */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/tune.h"

#define NAME_BYTES 4200

static int cannot(const char *path)
{
	return tune_error(1, "cannot write %s: %s", path, strerror(errno));
}

static void lines_put(const struct tune *tune, FILE *out)
{
	const struct tune_row *best = &tune->rows[tune->best];
	char day[32] = "";
	time_t now = time(NULL);
	struct tm parts;

	if (gmtime_r(&now, &parts) != NULL)
		strftime(day, sizeof(day), "%Y-%m-%d", &parts);
	fprintf(out,
	        "# winnow tune, %s: of %u operations, %u workers; d %.4f, U %.4f, at least %.3g ms "
	        "each at %.3g Gbit/s\nblock = %u\n",
	        day, tune->source.op_count, tune->net.world, best->d, best->united,
	        best->time_s * 1e3, tune->net.rate * 8 / 1e9, best->block);
}

static bool is_ours(const char *line)
{
	line += strspn(line, " \t");
	if (strncmp(line, "# winnow tune, ", 15) == 0)
		return true;
	if (strncmp(line, "block", 5) != 0)
		return false;
	line += 5 + strspn(line + 5, " \t");
	return *line == '=' || *line == ':';
}

/* The other lines stay; those for every program come before any section. */
static void others_put(FILE *old, FILE *out)
{
	bool in_section = false;
	size_t room = 0;
	char *line = NULL;

	while (getline(&line, &room, old) >= 0) {
		in_section = in_section || line[strspn(line, " \t")] == '[';
		if (in_section || !is_ours(line))
			fputs(line, out);
	}
	free(line);
}

/* Whole or not at all: a job may start at any moment. */
static int replace(const struct tune *tune, const char *path)
{
	char name[NAME_BYTES];
	FILE *out, *old;
	bool good;

	snprintf(name, sizeof(name), "%.4000s.%ld", path, (long)getpid());
	out = fopen(name, "wxe");
	if (out == NULL)
		return cannot(name);
	lines_put(tune, out);
	old = fopen(path, "re");
	if (old != NULL) {
		others_put(old, out);
		fclose(old);
	}
	good = fflush(out) == 0 && !ferror(out);
	good = fclose(out) == 0 && good;
	if (good && rename(name, path) == 0)
		return 0;
	cannot(path);
	unlink(name);
	return 1;
}

int tune_write(const struct tune *tune, const char *path)
{
	int status = replace(tune, path);

	if (status == 0 && !tune->settings->json)
		printf("Written: %s, for WINNOW_CONFIG=%s or winnow bench --config %s\n", path,
		       path, path);
	return status;
}

int tune_apply(const struct tune *tune)
{
	const char *path = getenv("WINNOW_CONFIG");
	int status = replace(tune, path);

	if (status == 0 && !tune->settings->json)
		printf("Applied: %s says block = %u; jobs that start from now on use it, those "
		       "that "
		       "run keep theirs\n",
		       path, tune->rows[tune->best].block);
	return status;
}
