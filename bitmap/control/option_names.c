// SPDX-License-Identifier: BSD-3-Clause
/* option_names.c - names that are nearly right: of options, commands, variables of the environment; see options.h */

#include "bitmap/control/options_impl.h"

#include <ctype.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

/* Letters to change, add or drop to make `b` of `a`; short words only. */
static uint32_t names_distance(const char *a, const char *b)
{
	uint32_t row[OPTION_NAME_BYTES], before, above;
	size_t length = strlen(b);

	if (length >= OPTION_NAME_BYTES)
		return OPTION_NAME_BYTES;
	for (uint32_t j = 0; j <= length; j++)
		row[j] = j;
	for (; *a != '\0'; a++) {
		before = row[0]++;
		for (uint32_t j = 1; j <= length; j++) {
			above = row[j];
			row[j] = before + (*a != b[j - 1]);
			if (above + 1 < row[j])
				row[j] = above + 1;
			if (row[j - 1] + 1 < row[j])
				row[j] = row[j - 1] + 1;
			before = above;
		}
	}
	return row[length];
}

const char *option_nearer(const char *name, const char *best, const char *other)
{
	return names_distance(other, name) < (best != NULL ? names_distance(best, name) : 3) ? other
	                                                                                     : best;
}

/* Options that once had another name, in each program that has them now. */
static const struct {
	const char *old, *now;
} renamed[] = {
	{"aggregator", "aggregators"},
	{"aggregators", "aggregator-count"},
};

/*
 * What programs of ours, the library and the Python package read from the environment, as options would be called. Each
 * option of each program is here: else another program would take its variable for a mistake.
 */
static const char *const variables[] = {
	"aggregator-count",
	"aggregator-rate",
	"aggregators",
	"alive",
	"bare",
	"block",
	"blocks",
	"buffer-bytes",
	"bytes-max",
	"channels",
	"check",
	"check-nan",
	"config",
	"connections-max",
	"cuda-plugin",
	"data-address",
	"datapath",
	"debug",
	"density",
	"device",
	"drain-timeout",
	"dscp",
	"dtype",
	"eal",
	"gateway",
	"grace",
	"hosts",
	"idle",
	"in-place",
	"index",
	"insecure-no-key",
	"interface",
	"isa",
	"iters",
	"job",
	"job-bytes-max",
	"jobs-max",
	"join-timeout",
	"json",
	"key",
	"key-file",
	"late",
	"library",
	"listen",
	"local",
	"log",
	"log-format",
	"maxbytes",
	"memory-mb",
	"metrics",
	"minbytes",
	"mtu",
	"multicast",
	"nccl",
	"network",
	"node",
	"op",
	"op-slots",
	"ops",
	"overlap",
	"payload",
	"payload-max",
	"per-host",
	"plot",
	"port",
	"quiet",
	"rank",
	"rate",
	"seed",
	"segments-ahead",
	"silence",
	"size",
	"staging-mb",
	"stepfactor",
	"threads",
	"timeline",
	"timeout",
	"trace",
	"trace-block",
	"trace-limit",
	"unit",
	"user",
	"warmup",
	"watch",
	"window-bytes",
	"wire",
	"within",
	"workers",
	"workers-max",
	"world",
	"xdp-mode",
	"xdp-slots",
};

const char *option_renamed(const char *old)
{
	for (size_t i = 0; i < sizeof(renamed) / sizeof(renamed[0]); i++)
		if (strcmp(renamed[i].old, old) == 0)
			return renamed[i].now;
	return NULL;
}

static bool variable_known(const char *name)
{
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		if (strcmp(variables[i], name) == 0)
			return true;
	return false;
}

const char *option_old_variable(const char *now)
{
	for (size_t i = 0; i < sizeof(renamed) / sizeof(renamed[0]); i++)
		if (strcmp(renamed[i].now, now) == 0 && !variable_known(renamed[i].old))
			return renamed[i].old;
	return NULL;
}

/* "late" of WINNOW_LATE=.. and of WINNOW_LATE_MS=... False: it is not one of ours, or too long. */
static bool variable_name(const char *entry, char name[OPTION_NAME_BYTES])
{
	size_t length = strcspn(entry, "="), used = 0;

	if (strncmp(entry, "WINNOW_", 7) != 0 || length >= OPTION_NAME_BYTES)
		return false;
	for (size_t i = 7; i < length; i++)
		name[used++] = (char)(entry[i] == '_' ? '-' : tolower((unsigned char)entry[i]));
	if (used > 3 && strncmp(name + used - 3, "-ms", 3) == 0)
		used -= 3;
	name[used] = '\0';
	return true;
}

/* The variable that this one may have been meant to be; NULL: it is known, or like none. Short names are easily alike. */
static const char *variable_meant(const char *name)
{
	const char *hint = NULL;

	if (variable_known(name))
		return NULL;
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		hint = option_nearer(name, hint, variables[i]);
	return hint != NULL && (names_distance(hint, name) == 1 || strlen(name) > 6) ? hint : NULL;
}

bool option_stranger(char *const **at, struct why *why)
{
	static atomic_bool all_told;
	char name[OPTION_NAME_BYTES];
	const char *meant = NULL;

	/* A program with rights that its caller lacks reads no variable, so none is a mistake. */
	if (atomic_load(&all_told) || getauxval(AT_SECURE) != 0)
		return false;
	for (; **at != NULL && meant == NULL; (*at)++)
		meant = variable_name(**at, name) ? variable_meant(name) : NULL;
	atomic_store(&all_told, meant == NULL);
	if (meant == NULL)
		return false;
	why_set(why, 0, "%.*s in the environment means nothing; did you mean WINNOW_",
	        (int)strcspn((*at)[-1], "="), (*at)[-1]);
	for (; *meant != '\0'; meant++)
		text_add(why->text, sizeof(why->text), "%c",
		         *meant == '-' ? '_' : toupper((unsigned char)*meant));
	text_add(why->text, sizeof(why->text), "?");
	return true;
}
