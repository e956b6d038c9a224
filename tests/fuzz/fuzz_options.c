// SPDX-License-Identifier: BSD-3-Clause
/*
 * fuzz_options.c - command lines, environments and INI files
 *
 * The input is text in parts that zero bytes part: arguments, one a line; the file; settings of
 * the environment, "NAME=value", one a line. Whatever they say, the program either starts with
 * values within their limits, or says in one line why not.
 */

#include <sanitizer/lsan_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bitmap/control/options.h"
#include "tests/fuzz/fuzz.h"

#define ARGS_MAX 24

static struct {
	const char *config, *text;
	uint64_t count, size, rate, time;
	double real;
	bool flag;
	enum { FIRST = 1, THIRD = 3 } choice;
	uint32_t ms, count32, dscp;
} out;

static const struct option list[] = {
	{"config", "FILE", OPTION_TEXT, &out.config, NULL, NULL, 0, 0, "the file"},
	{"text", "TEXT", OPTION_TEXT, &out.text, "preset", "TEXT", 0, 0, "text"},
	{"count", "N", OPTION_COUNT, &out.count, "4", "COUNT", 1, 1000, "count"},
	{"size", "SIZE", OPTION_SIZE, &out.size, "64K", NULL, 16, 1 << 30, "size"},
	{"rate", "RATE", OPTION_RATE, &out.rate, "1G", NULL, 0, 0, "rate"},
	{"join-time", "TIME", OPTION_TIME, &out.time, "10", NULL, 1000, 86400e6, "time"},
	{"real", "X", OPTION_REAL, &out.real, "0.5", NULL, 0, 1, "real"},
	{"flag", NULL, OPTION_FLAG, &out.flag, NULL, NULL, 0, 0, "flag"},
	{"choice", "first,one|second|third", OPTION_CHOICE, &out.choice, "first", NULL, FIRST,
         THIRD, "choice"},
	{"wait", "TIME", OPTION_MS, &out.ms, "10", NULL, 100, 60e3, "time"},
	{"dscp", "NAME|0..63", OPTION_DSCP, &out.dscp, "0", NULL, 0, 63, "class"},
	{"count32", "N", OPTION_COUNT32, &out.count32, "0", NULL, 10, 4000000000, "count"},
	{0},
};

static const struct options options = {
	.program = "fuzz",
	.usage = "[...]",
	.about = "About.",
	.examples = "  fuzz\n",
	.list = list,
	.section = "fuzz",
	.file_option = "config",
};

static const char *const variables[] = {
	"WINNOW_TEXT",      "WINNOW_COUNT",  "WINNOW_SIZE", "WINNOW_RATE",    "WINNOW_TIME",
	"WINNOW_JOIN_TIME", "WINNOW_REAL",   "WINNOW_FLAG", "TEXT",           "COUNT",
	"WINNOW_CONFIG",    "WINNOW_CHOICE", "WINNOW_WAIT", "WINNOW_WAIT_MS", "WINNOW_COUNT32"};

/* Put the pieces of `text` that `separator` parts into `pieces`; returns how many. */
static int split(char *text, char separator, char *pieces[], int max)
{
	int count = 0;

	for (; text != NULL && count < max; count++) {
		char *next = strchr(text, separator);

		if (next != NULL)
			*next++ = '\0';
		pieces[count] = text;
		text = next;
	}
	return count;
}

static void set_environment(char *text)
{
	char *settings[ARGS_MAX];
	int count = split(text, '\n', settings, ARGS_MAX);

	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		unsetenv(variables[i]);
	for (int i = 0; i < count; i++) {
		char *value = strchr(settings[i], '=');

		if (value == NULL)
			continue;
		*value++ = '\0';
		for (size_t k = 0; k < sizeof(variables) / sizeof(variables[0]); k++)
			if (strcmp(settings[i], variables[k]) == 0)
				setenv(settings[i], value, 1);
	}
}

static uint32_t lines_in(const char *text)
{
	uint32_t count = 0;

	for (; *text != '\0'; text++)
		count += *text == '\n';
	return count;
}

static void check_values(void)
{
	assert(out.count >= 1 && out.count <= 1000);
	assert(out.size >= 16 && out.size <= 1 << 30);
	assert(out.time >= 1000 && out.time <= UINT64_C(86400000000));
	assert(out.real >= 0 && out.real <= 1);
	assert(out.choice >= FIRST && out.choice <= THIRD);
	assert(out.ms >= 100 && out.ms <= 60000);
	assert(out.dscp <= 63);
	assert(out.count32 == 0 || (out.count32 >= 10 && out.count32 <= 4000000000));
	assert(out.text != NULL && strlen(out.text) < 5000);
}

/* Read with both streams in memory: what is said is part of the result. */
static void read_options(int argc, char **argv)
{
	FILE *errors = stderr, *output = stdout;
	char *said = NULL, *printed = NULL;
	size_t said_bytes, printed_bytes;
	int status;

	memset(&out, 0, sizeof(out));
	stderr = open_memstream(&said, &said_bytes);
	stdout = open_memstream(&printed, &printed_bytes);
	assert(stderr != NULL && stdout != NULL);
	__lsan_disable(); /* texts of a file are kept for the life of the process */
	status = options_read(&options, argc, argv);
	__lsan_enable();
	fclose(stderr);
	fclose(stdout);
	stderr = errors;
	stdout = output;
	assert(status >= 0 && status <= 2);
	assert((status == 1) == (printed_bytes > 0));
	assert(lines_in(said) == (status == 2 ? 1 : 0));
	if (status == 0)
		check_values();
	free(said);
	free(printed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static char program[] = "fuzz", config[] = "--config";
	char *text = malloc(bytes + 1), *parts[3] = {NULL}, *argv[ARGS_MAX + 2], path[64];
	const uint8_t *end;
	int argc, fd;

	assert(text != NULL);
	memcpy(text, data, bytes);
	text[bytes] = '\0';
	parts[0] = text;
	for (int i = 1; i < 3; i++) {
		end = memchr(parts[i - 1], '\0', bytes + 1 - (size_t)(parts[i - 1] - text));
		if ((size_t)((const char *)end - text) >= bytes)
			break;
		parts[i] = (char *)(uintptr_t)end + 1;
	}
	fd = memfd_create("options", 0);
	assert(fd >= 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	argv[0] = program;
	argc = 1;
	if (parts[1] != NULL) {
		assert(write(fd, parts[1], strlen(parts[1])) >= 0);
		argv[argc++] = config;
		argv[argc++] = path;
	}
	argc += parts[0][0] != '\0' ? split(parts[0], '\n', argv + argc, ARGS_MAX - 2) : 0;
	argv[argc] = NULL;
	set_environment(parts[2]);
	read_options(argc, argv);
	close(fd);
	free(text);
	return 0;
}
