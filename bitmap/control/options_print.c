// SPDX-License-Identifier: BSD-3-Clause
/* options_print.c - prints --help and --dump-config from the table */

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "bitmap/control/options_impl.h"

bool option_is_help(const char *word)
{
	return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 ||
	       strcmp(word, "--help-all") == 0;
}

/* A time without a unit is in seconds. */
static const char *unit_of(const struct option *option)
{
	bool time = option->kind == OPTION_TIME || option->kind == OPTION_MS;

	return time && isdigit((unsigned char)option->preset[strlen(option->preset) - 1]) ? "s"
	                                                                                  : "";
}

static void print_aliases(const struct options *options, const struct option *option)
{
	const char *before = "; also ";

	for (const struct option_alias *a = options->aliases; a != NULL && a->said != NULL; a++) {
		if (strcmp(a->name, option->name) != 0)
			continue;
		printf("%s%s", before, a->said);
		before = ", ";
	}
}

/* The group that begins with the option, or NULL. */
static const struct option_group *group_from(const struct options *options,
                                             const struct option *option)
{
	for (const struct option_group *g = options->groups; g != NULL && g->heading != NULL; g++)
		if (strcmp(g->first, option->name) == 0)
			return g;
	return NULL;
}

static void print_rare(const struct options *options)
{
	const char *before = "\n--help-all also shows: ";

	for (const struct option_group *g = options->groups; g != NULL && g->heading != NULL; g++) {
		if (!g->rare)
			continue;
		printf("%s%s", before, g->heading);
		before = ", ";
	}
	if (before[0] == ',')
		printf("\n");
}

static void print_option(const struct options *options, const struct option *o)
{
	char left[OPTION_NAME_BYTES * 4], value[OPTION_NAME_BYTES * 2] = "";

	if (o->kind == OPTION_CHOICE)
		option_choices(o->value, "|", "|", value, sizeof(value));
	else if (o->value != NULL)
		snprintf(value, sizeof(value), "%s", o->value);
	snprintf(left, sizeof(left), "--%s%s%s", o->name,
	         value[0] == '\0'    ? ""
	         : option_is_flag(o) ? "="
	                             : " ",
	         value);
	printf("  %-28s %s", left, o->help);
	print_aliases(options, o);
	if (option_is_argument(o))
		printf("; command line only");
	else if (o->env_alias != NULL && o->env_alias[0] == '=')
		printf("; in the environment %s", o->env_alias + 1);
	if (o->preset != NULL)
		printf(" [%s%s]", o->preset, unit_of(o));
	printf("\n");
}

void options_help(const struct options *options, bool all)
{
	bool rare = false;

	printf("usage: %s %s\n\n%s\n\noptions (also WINNOW_NAME in the environment%s):\n",
	       options->program, options->usage, options->about,
	       options->file_option != NULL ? ", or name = value in the file" : "");
	printf("  %-28s %s\n", "--dump-config",
	       "print all options, their values and where each is from");
	for (const struct option *o = options->list; o->name != NULL; o++) {
		const struct option_group *group = group_from(options, o);

		if (group != NULL)
			rare = group->rare && !all;
		if (rare)
			continue;
		if (group != NULL)
			printf("%s:\n", group->heading);
		print_option(options, o);
	}
	if (!all)
		print_rare(options);
	if (options->examples != NULL)
		printf("\nexamples:\n%s", options->examples);
}

/*
 * A line that must not be read back becomes a comment: an option that is not set, is secret, is for
 * the command line only, or names the file itself.
 */
void options_dump(const struct options *options, const struct origin origins[])
{
	printf("[%s]\n", options->section);
	for (const struct option *o = options->list; o->name != NULL; o++) {
		const struct origin *origin = &origins[o - options->list];
		bool secret = o->kind == OPTION_SECRET && origin->text != NULL;
		bool comment = origin->text == NULL || secret || option_is_argument(o) ||
		               (options->file_option != NULL &&
		                strcmp(o->name, options->file_option) == 0);
		char left[OPTION_NAME_BYTES * 2];

		snprintf(left, sizeof(left), "%s%s = %s", comment ? "; " : "", o->name,
		         secret                 ? "(hidden)"
		         : origin->text != NULL ? origin->text
		                                : "");
		printf("%-40s ; %s\n", left, origin->where);
	}
}
