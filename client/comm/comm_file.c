// SPDX-License-Identifier: BSD-3-Clause
/*
 * comm_file.c - WINNOW_CONFIG: a file of settings that winnow tune writes, or anybody
 *
 * INI: "block = 128" under [winnow]; what is not under it is other programs': winnowd and the
 * winnow command can be told to read the same file. It says how to reduce, not with whom: no
 * addresses, no keys.
 */

#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/control/options.h"
#include "client/comm/comm.h"

struct file {
	struct winnow_config *config;
	const char *path;
	struct why *why;
	bool failed;
};

const struct comm_number comm_numbers[] = {
	{"world", "WORLD_SIZE", offsetof(struct winnow_config, world), 1, WIRE_WORKERS_MAX, false,
         false},
	{"rank", "RANK", offsetof(struct winnow_config, rank), 0, WIRE_WORKERS_MAX - 1, false,
         false},
	{"block", "WINNOW_BLOCK", offsetof(struct winnow_config, block), 1, WIRE_BLOCK_ELEMS_MAX,
         false, true},
	{"threads", "WINNOW_THREADS", offsetof(struct winnow_config, threads), 1,
         BITMAP_POOL_THREADS_MAX, false, true},
	{"silence_ms", "WINNOW_SILENCE_MS", offsetof(struct winnow_config, silence_ms), 100,
         86400000, false, true},
	{"timeout_ms", "WINNOW_TIMEOUT_MS", offsetof(struct winnow_config, timeout_ms), 100,
         864000000, false, true},
	{"join_timeout_ms", "WINNOW_JOIN_TIMEOUT_MS",
         offsetof(struct winnow_config, join_timeout_ms), 100, 86400000, false, true},
	{"payload", "WINNOW_PAYLOAD", offsetof(struct winnow_config, payload), WIRE_PAYLOAD_MIN,
         WIRE_PAYLOAD_MAX, true, true},
	{"staging_mb", "WINNOW_STAGING_MB", offsetof(struct winnow_config, staging_mb), 0, 1 << 20,
         false, true},
	{NULL, NULL, 0, 0, 0, false, false},
};

uint32_t comm_number(const char *text)
{
	uint64_t number;

	if (option_count(text, &number) != 0 || number >= COMM_NO_NUMBER)
		return COMM_NO_NUMBER;
	return (uint32_t)number;
}

int comm_flag(const char *text)
{
	bool flag;

	return option_flag(text, &flag) == 0 ? flag : COMM_NO_FLAG;
}

enum winnow_wire comm_wire(const char *text)
{
	if (strcmp(text, "auto") == 0)
		return WINNOW_WIRE_AUTO;
	if (strcmp(text, "f32") == 0 || strcmp(text, "native") == 0)
		return WINNOW_WIRE_NATIVE;
	return strcmp(text, "fixed32") == 0 ? WINNOW_WIRE_FIXED32 : (enum winnow_wire) - 1;
}

static int line_failed(struct file *file, const char *name, const char *value, const char *want)
{
	if (!file->failed)
		why_set(file->why, WINNOW_ERR_INVALID, "WINNOW_CONFIG %s: %s is '%.80s': want %s",
		        file->path, name, value, want);
	file->failed = true;
	return 0;
}

/* "silence-ms" is silence_ms. */
static bool is_called(const char *name, const struct comm_number *number)
{
	size_t i = 0;

	for (; number->name[i] != '\0'; i++)
		if (name[i] != (number->name[i] == '_' ? '-' : number->name[i]))
			return false;
	return name[i] == '\0' && number->in_file;
}

static int line_take(void *context, const char *section, const char *name, const char *value)
{
	struct file *file = context;

	if (strcmp(section, "winnow") != 0)
		return 1;
	for (const struct comm_number *n = comm_numbers; n->name != NULL; n++) {
		if (!is_called(name, n))
			continue;
		if (comm_number(value) == COMM_NO_NUMBER)
			return line_failed(file, name, value, "a whole number");
		*(uint32_t *)(void *)((char *)file->config + n->at) = comm_number(value);
		return 1;
	}
	if (strcmp(name, "wire") == 0) {
		if ((int)comm_wire(value) < 0)
			return line_failed(file, name, value, "auto, f32 or fixed32");
		file->config->wire = comm_wire(value);
		return 1;
	}
	if (strcmp(name, "multicast") == 0) {
		if (comm_flag(value) == COMM_NO_FLAG)
			return line_failed(file, name, value, "yes or no");
		file->config->multicast = comm_flag(value);
		return 1;
	}
	return line_failed(file, name, value, "another name: see winnow.h");
}

int comm_file_read(struct winnow_config *config, struct why *why)
{
	const char *path = getenv("WINNOW_CONFIG");
	struct file file = {.config = config, .path = path, .why = why};
	int err;

	if (path == NULL || path[0] == '\0')
		return WINNOW_OK;
	err = ini_parse(path, line_take, &file);
	if (file.failed)
		return WINNOW_ERR_INVALID;
	if (err < 0)
		return why_set(why, WINNOW_ERR_INVALID, "cannot read WINNOW_CONFIG %s: %s", path,
		               strerror(errno));
	if (err > 0)
		return why_set(why, WINNOW_ERR_INVALID,
		               "WINNOW_CONFIG %s, line %d: want \"name = value\"", path, err);
	return WINNOW_OK;
}
