// SPDX-License-Identifier: BSD-3-Clause
/* tune_apply.c - --write, --apply: the best block size into a file of options */

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/tune/tune.h"

/* The readers of the file: the library, and winnow bench. */
static const char *const sections[] = {"winnow", "bench"};

#define SECTIONS (sizeof(sections) / sizeof(sections[0]))

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

/* The old file with the new block under both sections; all its other lines stay. */
static void lines_put(const struct tune *tune, FILE *old, FILE *out)
{
	bool done[SECTIONS] = {false};
	size_t section = SECTIONS, room = 0;
	char *line = NULL, name[16], sign[2];

	while (old != NULL && getline(&line, &room, old) >= 0) {
		bool begins = sscanf(line, " [%15[^]]]", name) == 1;

		/* What an earlier tuning, or a user, has written. */
		if (!begins && section < SECTIONS &&
		    (sscanf(line, " block %1[=:]", sign) == 1 ||
		     sscanf(line, " # winnow tune%1[,]", sign) == 1))
			continue;
		fputs(line, out);
		if (strchr(line, '\n') == NULL)
			fputc('\n', out);
		if (!begins)
			continue;
		for (section = 0; section < SECTIONS; section++)
			if (strcmp(name, sections[section]) == 0)
				break;
		if (section == SECTIONS || done[section])
			continue;
		block_put(tune, section, out);
		done[section] = true;
	}
	free(line);
	for (size_t i = 0; i < SECTIONS; i++) {
		if (done[i])
			continue;
		fprintf(out, "[%s]\n", sections[i]);
		block_put(tune, i, out);
	}
}

/* A new file for the readers and writers of the old one, which may hold a key. */
static FILE *file_make(const char *name, FILE *old)
{
	mode_t mask = umask(077);
	struct stat was;
	FILE *out;

	if (old == NULL)
		umask(mask);
	out = fopen(name, "wxe");
	umask(mask);
	if (out == NULL || old == NULL || fstat(fileno(old), &was) != 0)
		return out;
	/* The owner may not be ours to give. Members of another group get nothing. */
	if (fchown(fileno(out), was.st_uid, was.st_gid) != 0 &&
	    fchown(fileno(out), (uid_t)-1, was.st_gid) != 0)
		was.st_mode &= ~(mode_t)S_IRWXG;
	(void)!fchmod(fileno(out), was.st_mode & 0777);
	return out;
}

/* All of it or nothing: a job may start at any moment. */
int tune_write(const struct tune *tune, const char *path, const char *done)
{
	char name[4200], target[PATH_MAX];
	FILE *out, *old;
	bool good;

	if (realpath(path, target) != NULL)
		path = target;
	snprintf(name, sizeof(name), "%.4000s.%ld", path, (long)getpid());
	old = fopen(path, "re");
	if (old == NULL && errno != ENOENT)
		return cli_error(1, "cannot read %s: %s", path, strerror(errno));
	out = file_make(name, old);
	if (out == NULL)
		return cli_error(1, "cannot write %s: %s", name, strerror(errno));
	lines_put(tune, old, out);
	if (old != NULL)
		fclose(old);
	good = fflush(out) == 0 && !ferror(out);
	good = fclose(out) == 0 && good;
	if (!good || rename(name, path) != 0) {
		cli_error(1, "cannot write %s: %s", path, strerror(errno));
		unlink(name);
		return 1;
	}
	if (!tune->settings->json)
		printf("%s\n", done);
	return 0;
}
