// SPDX-License-Identifier: BSD-3-Clause
/* option_names.c - finds names that are nearly right: of options, commands and variables */

#include "bitmap/control/options_impl.h"

#include <ctype.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

/* Returns how many letters to change, add or drop to turn `a` into `b`; short words only. */
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

/*
 * The variables that our programs, the library and the Python package read, named like options.
 * Every option of every program must be here, or another program takes its variable for a mistake.
 */
static const char variables[] =
	"aggregator-count aggregator-rate aggregators alive bare block blocks "
	"buffer-bytes bytes-max channels check check-nan config connections-max "
	"cuda-plugin data-address datapath debug density device drain-timeout dscp dtype "
	"eal gateway grace hosts idle in-place index insecure-no-key interface isa iters "
	"job job-bytes-max jobs-max join-timeout json key key-file late library listen "
	"local log log-format maxbytes memory-mb metrics minbytes mtu multicast nccl "
	"network node op op-slots ops overlap parent payload payload-max per-host plot "
	"port quiet rank rate seed segments-ahead silence site sites size staging-mb stepfactor "
	"threads timeline timeout trace trace-block trace-limit unit user warmup watch "
	"window-bytes wire within workers workers-max world xdp-mode xdp-slots";

/* "late" for WINNOW_LATE and WINNOW_LATE_MS. Returns false if it is not ours, or too long. */
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

/* Finds what a variable may have been meant to be. False if it is ours or resembles none. */
static bool variable_meant(const char *name, char meant[OPTION_NAME_BYTES])
{
	uint32_t least = 3, distance;

	for (const char *at = variables; *at != '\0'; at += strspn(at, " ")) {
		char known[OPTION_NAME_BYTES];
		int length = (int)strcspn(at, " ");

		snprintf(known, sizeof(known), "%.*s", length, at);
		distance = names_distance(known, name);
		if (distance < least)
			strcpy(meant, known);
		least = distance < least ? distance : least;
		at += length;
	}
	return least == 1 || (least == 2 && strlen(name) > 6);
}

bool option_stranger(char *const **at, struct why *why)
{
	static atomic_bool all_told;
	char name[OPTION_NAME_BYTES], meant[OPTION_NAME_BYTES];
	bool strange = false;

	/* A program with rights that its caller lacks reads no variable, so none is a mistake. */
	if (atomic_load(&all_told) || getauxval(AT_SECURE) != 0)
		return false;
	for (; **at != NULL && !strange; (*at)++)
		strange = variable_name(**at, name) && variable_meant(name, meant);
	atomic_store(&all_told, !strange);
	if (!strange)
		return false;
	why_set(why, 0, "%.*s in the environment has no effect; did you mean WINNOW_",
	        (int)strcspn((*at)[-1], "="), (*at)[-1]);
	for (const char *c = meant; *c != '\0'; c++)
		text_add(why->text, sizeof(why->text), "%c",
		         *c == '-' ? '_' : toupper((unsigned char)*c));
	text_add(why->text, sizeof(why->text), "?");
	return true;
}
