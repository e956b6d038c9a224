/* SPDX-License-Identifier: BSD-3-Clause */
/* test_options.h - a program's options, of every kind, and what its user is told */
#ifndef TESTS_UNIT_TEST_OPTIONS_H
#define TESTS_UNIT_TEST_OPTIONS_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bitmap/control/options.h"
#include "tests/unit/unit.h"

static struct {
	const char *config, *text, *secret, *key, *key_file;
	uint64_t count, size, rate, time, again;
	double real;
	bool flag, once;
	enum { FIRST = 1, SECOND, THIRD } choice;
	int int_flag;
	uint32_t count32, ms, dscp, other;
} out;

static const struct option list[] = {
	{"config", "FILE", OPTION_TEXT, &out.config, NULL, NULL, 0, 0, "the file"},
	{"text", "TEXT", OPTION_TEXT, &out.text, NULL, NULL, 0, 0, "a text"},
	{"op-count", "N", OPTION_COUNT, &out.count, "4", "OTHER_COUNT", 1, 1000, "a count"},
	{"size", "SIZE", OPTION_SIZE, &out.size, "64K", NULL, 16, 1 << 30, "a size"},
	{"rate", "RATE", OPTION_RATE, &out.rate, "1G", NULL, 0, 0, "a rate"},
	{"time", "TIME", OPTION_TIME, &out.time, "10", NULL, 1000, 60e6, "a time"},
	{"real", "X", OPTION_REAL, &out.real, "0.5", NULL, 0, 1, "a number"},
	{"flag", NULL, OPTION_FLAG, &out.flag, NULL, NULL, 0, 0, "a flag"},
	{"choice", "first,one|second|third,three", OPTION_CHOICE, &out.choice, "first", NULL, FIRST,
         THIRD, "one of three"},
	{"int-flag", NULL, OPTION_INT_FLAG, &out.int_flag, "0", NULL, 0, 0, "a flag of C"},
	{"count32", "N", OPTION_COUNT32, &out.count32, "0", NULL, 10, 4000000000, "a count or 0"},
	{"wait", "TIME", OPTION_MS, &out.ms, "10", NULL, 100, 60e3, "a time"},
	{"dscp", "NAME|0..63", OPTION_DSCP, &out.dscp, "0", NULL, 0, 63, "a class"},
	{"secret", "TEXT", OPTION_SECRET, &out.secret, NULL, NULL, 0, 0, "a password"},
	{"key", "KEY", OPTION_SECRET, &out.key, NULL, NULL, 0, 0, "a key"},
	{"key-file", "FILE", OPTION_TEXT, &out.key_file, NULL, NULL, 0, 0, "keys"},
	{"else", "N", OPTION_COUNT32, &out.other, NULL, "=WINNOW_OTHER", 0, 9, "another"},
	{"once", NULL, OPTION_FLAG, &out.once, NULL, OPTION_ARGUMENT, 0, 0, "not always"},
	{"again", "[TIME]", OPTION_TIME, &out.again, "0", OPTION_ARGUMENT, 1000, 60e6, "each TIME"},
	{0},
};

static const struct option_alias aliases[] = {
	{"-cc", "op-count"}, {"-c", "op-count"}, {"-t", "text"}, {"--counts", "op-count"}, {0}};

static const struct option_group groups[] = {
	{"counts", "op-count", false},
	{"flags", "flag", true},
	{"waiting", "wait", true},
	{"keys", "secret", false},
	{0},
};

static struct options options = {
	.program = "prog",
	.usage = "[...]",
	.about = "About it.",
	.examples = "  prog --flag\n",
	.list = list,
	.aliases = aliases,
	.groups = groups,
	.section = "prog",
	.file_option = "config",
};

static char said[8192]; /* on stderr, or on stdout */

/* Texts from a file are kept for the life of the process: to be no leak, they are known here. */
static const char *kept[1024];
static uint32_t kept_count;

/* Read with stderr and stdout in memory. */
static inline int read_all(const char *const arguments[])
{
	FILE *errors = stderr, *output = stdout, *memory = tmpfile();
	char *argv[16] = {(char *)(uintptr_t) "prog"};
	int argc = 1, status;

	while (arguments[argc - 1] != NULL) {
		argv[argc] = (char *)(uintptr_t)arguments[argc - 1];
		argc++;
	}
	memset(&out, 0, sizeof(out));
	memset(said, 0, sizeof(said));
	assert_non_null(memory);
	stderr = stdout = memory;
	status = options_read(&options, argc, argv);
	assert_true(kept_count + 3 <= sizeof(kept) / sizeof(kept[0]));
	kept[kept_count++] = out.text;
	kept[kept_count++] = out.key;
	kept[kept_count++] = out.key_file;
	stderr = errors;
	stdout = output;
	rewind(memory);
	assert_true(fread(said, 1, sizeof(said) - 1, memory) < sizeof(said) - 1);
	fclose(memory);
	return status;
}

/* What these arguments give. */
#define GIVES(what, ...) (assert_int_equal(READ(__VA_ARGS__), 0), assert_true(what))
#define READ(...) read_all((const char *const[]){__VA_ARGS__, NULL})

static inline uint32_t lines_said(void)
{
	uint32_t count = 0;

	for (const char *c = said; *c != '\0'; c++)
		count += *c == '\n';
	return count;
}

static inline void assert_wrong(int status, const char *reason)
{
	assert_int_equal(status, 2);
	if (lines_said() != 1 || strstr(said, reason) == NULL || strncmp(said, "prog: ", 6) != 0)
		fail_msg("want one line with '%s': %s", reason, said);
}

#endif /* TESTS_UNIT_TEST_OPTIONS_H */
