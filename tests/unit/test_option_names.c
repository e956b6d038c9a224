// SPDX-License-Identifier: BSD-3-Clause
/*
 * test_option_names.c - a variable of the environment means one thing to winnowd, to all commands and to the library
 *
 * All of them may run where one variable is set: a container, a job. Their tables of options are
 * caught on the way to options.c, which this file stands in for.
 */

#include <stdio.h>
#include <string.h>

int winnowd_main(int argc, char **argv);
int winnow_main(int argc, char **argv);

/* The tables are in the files with main(), or reached from there. */
#define main winnowd_main
#include "aggregator/winnowd.c"
#undef main
#define main winnow_main
#include "client/cli/main.c"
#include "tests/unit/unit.h"
#undef main

#define VARIABLES_MAX 400

static struct variable {
	char name[64];
	const char *program;
	struct option option;
} variables[VARIABLES_MAX];
static uint32_t variable_count;

static void variable_add(const char *program, const struct option *option, const char *prefix,
                         const char *name)
{
	struct variable *variable = &variables[variable_count++];

	assert_true(variable_count < VARIABLES_MAX);
	*variable = (struct variable){.program = program, .option = *option};
	snprintf(variable->name, sizeof(variable->name), "%s%s", prefix, name);
	for (char *c = variable->name; *c != '\0'; c++)
		*c = *c == '-' ? '_' : *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c;
}

/* As options.h says which variables are an option's. */
static void table_add(const char *program, const struct option table[])
{
	for (const struct option *o = table; o->name != NULL; o++) {
		if (o->env_alias == NULL || o->env_alias[0] != '=')
			variable_add(program, o, "WINNOW_", o->name);
		if (o->env_alias != NULL && strcmp(o->env_alias, OPTION_ARGUMENT) != 0)
			variable_add(program, o, "", o->env_alias + (o->env_alias[0] == '='));
	}
}

/* Each heading of the help stands before an option. */
static void groups_check(const struct options *of)
{
	for (const struct option_group *g = of->groups; g != NULL && g->heading != NULL; g++) {
		const struct option *o = of->list;

		while (o->name != NULL && strcmp(o->name, g->first) != 0)
			o++;
		assert_non_null(o->name);
	}
}

int options_read(const struct options *of, int argc, char **argv)
{
	groups_check(of);
	table_add(of->program, of->list);
	return 1;
}

void options_preset(const struct option table[])
{
	table_add("libwinnow", table);
}

int option_env(const struct option *option, struct why *why)
{
	return 0;
}

int options_file(const struct options *of, const char *path, struct why *why)
{
	return 0;
}

int option_check(const struct option *option, struct why *why)
{
	return 0;
}

/* What one takes, so does the other: kinds that differ in nothing but their memory are one. */
static enum option_kind grammar(enum option_kind kind)
{
	return kind == OPTION_COUNT32    ? OPTION_COUNT
	       : kind == OPTION_SIZE32   ? OPTION_SIZE
	       : kind == OPTION_MS       ? OPTION_TIME
	       : kind == OPTION_INT_FLAG ? OPTION_FLAG
	                                 : kind;
}

static bool same_meaning(const struct option *a, const struct option *b)
{
	if (strcmp(a->name, "multicast") == 0)
		return true; /* winnowd's is a text that may be yes or no */
	return grammar(a->kind) == grammar(b->kind) &&
	       (a->kind != OPTION_CHOICE || strcmp(a->value, b->value) == 0);
}

static uint32_t count_of(const char *name)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < variable_count; i++)
		count += strcmp(variables[i].name, name) == 0;
	return count;
}

/* option_names.c has the variable of each option: it is what a misspelled one may have been meant to be. */
static void expect_known(const char *name)
{
	char entry[80], meant[80], *entries[] = {entry, NULL}, *const *at = entries;
	struct why why;

	snprintf(entry, sizeof(entry), "%sQ=1", name);
	snprintf(meant, sizeof(meant), "did you mean %s?", name);
	if (!option_stranger(&at, &why) || strstr(why.text, meant) == NULL)
		fail_msg("option_names.c does not have %s", name);
}

TEST(one_meaning)
{
	char program[] = "program", *argv[] = {program, NULL};
	struct winnow_config config_of_all;

	assert_int_equal(winnowd_main(1, argv), 0);
	for (const struct command *c = cli_commands; c->name != NULL; c++)
		if (c->has_options)
			assert_int_equal(c->run(1, argv), 0);
	winnow_config_init(&config_of_all);
	/* All have come by here. */
	assert_int_equal(count_of("WINNOW_LISTEN"), 1);
	assert_int_equal(count_of("WINNOW_JSON"), 4);
	assert_true(count_of("WINNOW_STAGING_MB") > 0);
	for (uint32_t i = 0; i < variable_count; i++)
		if (strncmp(variables[i].name, "WINNOW_", 7) == 0)
			expect_known(variables[i].name);
	for (uint32_t i = 0; i < variable_count; i++)
		for (uint32_t k = 0; k < i; k++)
			if (strcmp(variables[i].name, variables[k].name) == 0 &&
			    !same_meaning(&variables[i].option, &variables[k].option))
				fail_msg("%s means one thing to %s, another to %s",
				         variables[i].name, variables[k].program,
				         variables[i].program);
}
