// SPDX-License-Identifier: BSD-3-Clause
/* cli.c - what subcommands have in common: lines on stderr, memory, medians */

#include "client/cli/cli.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bitmap/why.h"
#include "client/winnow.h"

#define LINE_BYTES 8192 /* Enough for an error with two paths in it. */

static const char *command = "";

int cli_error(int status, const char *format, ...)
{
	char text[LINE_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	text_show(text);
	fprintf(stderr, "winnow%s%s: %s\n", command[0] != '\0' ? " " : "", command, text);
	return status;
}

static void log_line_print(void *context, enum winnow_level level, const char *text)
{
	const struct winnow_config *config = context;

	if (level > WINNOW_WARN && level > config->debug)
		return;
	cli_progress("%s", "");
	cli_error(0, "%s", text);
}

void cli_tells(struct winnow_config *config)
{
	config->log = log_line_print;
	config->log_context = config;
}

int cli_flush(int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	return cli_error(status, "cannot write: %s", strerror(errno));
}

static void *memory_or_end(void *memory, const char *what)
{
	if (memory == NULL)
		exit(cli_error(1, "no memory for %s", what));
	return memory;
}

static void *json_memory(size_t bytes)
{
	return memory_or_end(malloc(bytes), "JSON");
}

void cli_begin(const char *name)
{
	command = name;
	json_set_alloc_funcs(json_memory, free);
}

void cli_json_print(json_t *json, size_t flags)
{
	json_dumpf(json, stdout, flags);
	printf("\n");
	json_decref(json);
}

void *cli_memory(size_t count, size_t bytes, const char *what)
{
	return memory_or_end(calloc(count, bytes), what);
}

void *cli_memory_more(void *memory, size_t bytes, const char *what)
{
	return memory_or_end(realloc(memory, bytes), what);
}

void *cli_tensor(uint64_t bytes)
{
	void *tensor;

	if (posix_memalign(&tensor, 4096, bytes + 1) != 0)
		exit(cli_error(1, "no memory for a tensor of %llu bytes",
		               (unsigned long long)bytes));
	return tensor;
}

void cli_progress(const char *format, ...)
{
	va_list args;

	if (!isatty(STDERR_FILENO))
		return;
	fprintf(stderr, "\r\033[K");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fflush(stderr);
}

uint32_t cli_item_count(const char *list)
{
	uint32_t count = 1;

	for (; *list != '\0'; list++)
		count += *list == ',';
	return count;
}

static int number_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double median(double values[], uint64_t count)
{
	qsort(values, count, sizeof(values[0]), number_compare);
	return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}
