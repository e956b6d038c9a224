// SPDX-License-Identifier: BSD-3-Clause
/* tune_apply.c - --write, --apply: the best block size into a file of options */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/tune/tune.h"

#define NAME_BYTES 4200

static int cannot(const char *path)
{
	return cli_error(1, "cannot write %s: %s", path, strerror(errno));
}

/* The readers of the file: the library, and winnow bench. */
static const char *const sections[] = {"winnow", "bench"};

#define SECTION_COUNT (sizeof(sections) / sizeof(sections[0]))

static void block_put(const struct tune *tune, size_t section, FILE *out)
{
	const struct tune_row *best = &tune->rows[tune->best];
	char day[32] = "";
	time_t now = time(NULL);
	struct tm parts;

	if (gmtime_r(&now, &parts) != NULL)
		strftime(day, sizeof(day), "%Y-%m-%d", &parts);
	if (section == 0)
		fprintf(out,
		        "# winnow tune, %s: %u operations, %u workers; d %.4f, U %.4f, at least "
		        "%.3g ms each at %.3g Gbit/s\n",
		        day, tune->source.op_count, tune->net.world, best->d, best->united,
		        best->time_s * 1e3, tune->net.rate * 8 / 1e9);
	fprintf(out, "block = %u\n", best->block);
}

/* A line that an earlier tuning, or a user, has written. */
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

/* "[bench]" is 1; SECTION_COUNT: another one; -1: not the beginning of a section. */
static int section_of(const char *line)
{
	line += strspn(line, " \t");
	if (line[0] != '[')
		return -1;
	for (size_t i = 0; i < SECTION_COUNT; i++) {
		size_t length = strlen(sections[i]);

		if (strncmp(line + 1, sections[i], length) == 0 && line[1 + length] == ']')
			return (int)i;
	}
	return SECTION_COUNT;
}

/* The old file with the new block under both sections; all its other lines stay. */
static void lines_put(const struct tune *tune, FILE *old, FILE *out)
{
	bool done[SECTION_COUNT] = {false}, ours = false;
	size_t room = 0;
	char *line = NULL;

	while (old != NULL && getline(&line, &room, old) >= 0) {
		int section = section_of(line);

		if (section >= 0)
			ours = section < (int)SECTION_COUNT;
		if (section < 0 && ours && is_ours(line))
			continue;
		fputs(line, out);
		if (strchr(line, '\n') == NULL)
			fputc('\n', out);
		if (section < 0 || !ours || done[section])
			continue;
		block_put(tune, (size_t)section, out);
		done[section] = true;
	}
	free(line);
	for (size_t i = 0; i < SECTION_COUNT; i++) {
		if (done[i])
			continue;
		fprintf(out, "[%s]\n", sections[i]);
		block_put(tune, i, out);
	}
}

/* All of it or nothing: a job may start at any moment. */
static int replace(const struct tune *tune, const char *path)
{
	char name[NAME_BYTES];
	FILE *out, *old;
	bool good;

	snprintf(name, sizeof(name), "%.4000s.%ld", path, (long)getpid());
	out = fopen(name, "wxe");
	if (out == NULL)
		return cannot(name);
	old = fopen(path, "re");
	lines_put(tune, old, out);
	if (old != NULL)
		fclose(old);
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
		       "that run keep theirs\n",
		       path, tune->rows[tune->best].block);
	return status;
}
