// SPDX-License-Identifier: BSD-3-Clause
/*
 * comm_settings.c - struct winnow_config: defaults, WINNOW_CONFIG, the environment, and whether it is possible
 *
 * WINNOW_CONFIG names a file that winnow tune writes, or anybody. INI: "block = 128" under [winnow]; what
 * is not under it is other programs': winnowd and the winnow command can be told to read the same file.
 * It says how to reduce, not with whom: no addresses, no keys.
 */

#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/control/options.h"
#include "client/comm/comm.h"

/* What a text becomes that is no value of the field's: the error comes at create. */
#define NO_NUMBER UINT32_MAX
#define NO_FLAG INT_MIN
#define NO_WIRE (-1)

enum kind { TEXT, NUMBER, FLAG, WIRE };

static const char *const kind_wants[] = {
	[NUMBER] = "a whole number", [FLAG] = "yes or no", [WIRE] = "auto, f32 or fixed32"};

enum { OR_0 = 1, IN_FILE = 2 }; /* 0 is allowed beside the range; the file may say it */

struct setting {
	const char *name; /* in struct winnow_config; in the file with '-' for '_' */
	const char *env, *preset;
	enum kind kind;
	uint32_t flags;
	size_t at; /* in struct winnow_config */
	uint32_t least, most;
};

#define SETTING(field, env, preset, kind, flags, least, most)                                      \
	{                                                                                          \
#field, env, preset, kind, flags, offsetof(struct winnow_config, field), least,    \
			most                                                                       \
	}
#define PLAIN_TEXT(field, env, preset) SETTING(field, env, preset, TEXT, 0, 0, 0)

/* winnowd, which knows which workers are missing, says so after 60 s: before join_timeout_ms. */
static const struct setting settings[] = {
	SETTING(world, "WORLD_SIZE", "1", NUMBER, 0, 1, WIRE_WORKERS_MAX),
	SETTING(rank, "RANK", "0", NUMBER, 0, 0, WIRE_WORKERS_MAX - 1),
	SETTING(block, "WINNOW_BLOCK", "256", NUMBER, IN_FILE, 1, WIRE_BLOCK_ELEMS_MAX),
	SETTING(threads, "WINNOW_THREADS", "1", NUMBER, IN_FILE, 1, BITMAP_POOL_THREADS_MAX),
	SETTING(silence_ms, "WINNOW_SILENCE_MS", "10000", NUMBER, IN_FILE, 100, 86400000),
	SETTING(timeout_ms, "WINNOW_TIMEOUT_MS", "600000", NUMBER, IN_FILE, 100, 864000000),
	SETTING(join_timeout_ms, "WINNOW_JOIN_TIMEOUT_MS", "65000", NUMBER, IN_FILE, 100, 86400000),
	SETTING(payload, "WINNOW_PAYLOAD", "0", NUMBER, IN_FILE | OR_0, WIRE_PAYLOAD_MIN,
                WIRE_PAYLOAD_MAX),
	SETTING(staging_mb, "WINNOW_STAGING_MB", "64", NUMBER, IN_FILE, 0, 1 << 20),
	SETTING(insecure_no_key, "WINNOW_INSECURE_NO_KEY", "no", FLAG, 0, 0, 0),
	SETTING(multicast, "WINNOW_MULTICAST", "yes", FLAG, IN_FILE, 0, 0),
	SETTING(wire, "WINNOW_WIRE", "auto", WIRE, IN_FILE, 0, 0),
	PLAIN_TEXT(aggregators, "WINNOW_AGGREGATORS", NULL),
	PLAIN_TEXT(job, "WINNOW_JOB", "default"),
	PLAIN_TEXT(key_file, "WINNOW_KEY_FILE", NULL),
	PLAIN_TEXT(key, "WINNOW_KEY", NULL),
	PLAIN_TEXT(datapath, "WINNOW_DATAPATH", "udp"),
	PLAIN_TEXT(eal, "WINNOW_EAL", NULL),
	PLAIN_TEXT(device, "WINNOW_DEVICE", NULL),
	PLAIN_TEXT(data_address, "WINNOW_DATA_ADDRESS", NULL),
	PLAIN_TEXT(gateway, "WINNOW_GATEWAY", NULL),
};

#define SETTING_COUNT (sizeof(settings) / sizeof(settings[0]))

/* ---- values ---- */

static uint32_t number_of(const char *text)
{
	uint64_t number;

	return option_count(text, &number) == 0 && number < NO_NUMBER ? (uint32_t)number
	                                                              : NO_NUMBER;
}

static int flag_of(const char *text)
{
	bool flag;

	return option_flag(text, &flag) == 0 ? flag : NO_FLAG;
}

static int wire_of(const char *text)
{
	if (strcmp(text, "auto") == 0)
		return WINNOW_WIRE_AUTO;
	if (strcmp(text, "f32") == 0 || strcmp(text, "native") == 0)
		return WINNOW_WIRE_NATIVE;
	return strcmp(text, "fixed32") == 0 ? WINNOW_WIRE_FIXED32 : NO_WIRE;
}

static void *place_of(const struct winnow_config *config, const struct setting *setting)
{
	return (char *)(uintptr_t)config + setting->at;
}

/* False: the text is no value of this kind. */
static bool set(struct winnow_config *config, const struct setting *setting, const char *text)
{
	void *at = place_of(config, setting);

	switch (setting->kind) {
	case TEXT:
		*(const char **)at = text;
		return true;
	case NUMBER:
		*(uint32_t *)at = number_of(text);
		return *(uint32_t *)at != NO_NUMBER;
	case FLAG:
		*(int *)at = flag_of(text);
		return *(int *)at != NO_FLAG;
	case WIRE:
		*(enum winnow_wire *)at = (enum winnow_wire)wire_of(text);
		return wire_of(text) != NO_WIRE;
	}
	return false;
}

/* A flag that is empty is off; anything else is then not set. */
static const char *env_of(const struct setting *setting)
{
	const char *value = getenv(setting->env);

	return value != NULL && (value[0] != '\0' || setting->kind == FLAG) ? value : NULL;
}

/* ---- the file ---- */

struct file {
	struct winnow_config *config;
	const char *path;
	struct why *why;
	bool failed;
};

/* "silence-ms" is silence_ms. */
static bool is_called(const char *name, const struct setting *setting)
{
	size_t i = 0;

	for (; setting->name[i] != '\0'; i++)
		if (name[i] != (setting->name[i] == '_' ? '-' : setting->name[i]))
			return false;
	return name[i] == '\0' && (setting->flags & IN_FILE);
}

/* The parser goes on after what is wrong, but the first is said. */
static int line_take(void *context, const char *section, const char *name, const char *value)
{
	struct file *file = context;
	const char *want = "another name: see winnow.h";

	if (strcmp(section, "winnow") != 0)
		return 1;
	for (size_t i = 0; i < SETTING_COUNT; i++) {
		struct winnow_config tried = *file->config;

		if (!is_called(name, &settings[i]))
			continue;
		if (set(&tried, &settings[i], value)) {
			*file->config = tried;
			return 1;
		}
		want = kind_wants[settings[i].kind];
	}
	if (!file->failed)
		why_set(file->why, 0, "WINNOW_CONFIG %s: %s is '%.80s': want %s", file->path, name,
		        value, want);
	file->failed = true;
	return 0;
}

/* Into fields of `config`; an enum winnow_result. */
static int file_read(struct winnow_config *config, struct why *why)
{
	const char *path = getenv("WINNOW_CONFIG");
	struct file file = {.config = config, .path = path, .why = why};
	int err;

	if (path == NULL || path[0] == '\0')
		return WINNOW_OK;
	err = ini_parse(path, line_take, &file);
	if (err < 0)
		return why_set(why, WINNOW_ERR_INVALID, "cannot read WINNOW_CONFIG %s: %s", path,
		               strerror(errno));
	if (err > 0 && !file.failed)
		why_set(why, 0, "WINNOW_CONFIG %s, line %d: want \"name = value\"", path, err);
	return err == 0 ? WINNOW_OK : WINNOW_ERR_INVALID;
}

void winnow_config_init(struct winnow_config *config)
{
	struct why why;

	*config = (struct winnow_config){0};
	for (size_t i = 0; i < SETTING_COUNT; i++)
		if (settings[i].preset != NULL)
			set(config, &settings[i], settings[i].preset);
	(void)file_read(config, &why); /* what is wrong with it is said at create */
	for (size_t i = 0; i < SETTING_COUNT; i++)
		if (env_of(&settings[i]) != NULL)
			set(config, &settings[i], env_of(&settings[i]));
}

/* ---- checking ---- */

/* "block is 0", by the name under which it was given. */
static void tell_number(const struct setting *setting, uint32_t value, char *text, size_t room)
{
	const char *env = env_of(setting), *path = getenv("WINNOW_CONFIG");
	struct winnow_config from_file = {0};
	struct why why;

	if (env != NULL && number_of(env) == value)
		snprintf(text, room, "%s is '%.80s'", setting->env, env);
	else if (value != 0 && file_read(&from_file, &why) == WINNOW_OK &&
	         *(uint32_t *)place_of(&from_file, setting) == value)
		snprintf(text, room, "%s in WINNOW_CONFIG %.120s is %u", setting->name, path,
		         value);
	else
		snprintf(text, room, "%s is %u", setting->name, value);
}

static int check_number(const struct setting *setting, uint32_t value, struct why *why)
{
	char text[256];

	if ((value >= setting->least && value <= setting->most) ||
	    ((setting->flags & OR_0) && value == 0))
		return WINNOW_OK;
	tell_number(setting, value, text, sizeof(text));
	return why_set(why, WINNOW_ERR_INVALID, "%s: want %u to %u%s", text, setting->least,
	               setting->most, setting->flags & OR_0 ? ", or 0" : "");
}

static int check_setting(const struct winnow_config *c, const struct setting *setting,
                         struct why *why)
{
	const void *at = place_of(c, setting);
	const char *env = env_of(setting);
	bool good = true;

	if (setting->kind == NUMBER)
		return check_number(setting, *(const uint32_t *)at, why);
	if (setting->kind == FLAG)
		good = *(const int *)at != NO_FLAG;
	if (setting->kind == WIRE)
		good = (int)c->wire >= WINNOW_WIRE_AUTO && c->wire <= WINNOW_WIRE_FIXED32;
	if (good)
		return WINNOW_OK;
	if (setting->kind == WIRE && ((int)c->wire != NO_WIRE || env == NULL))
		return why_set(why, WINNOW_ERR_INVALID, "wire form %d: want %s", (int)c->wire,
		               kind_wants[WIRE]);
	return why_set(why, WINNOW_ERR_INVALID, "%s is '%.80s': want %s", setting->env,
	               env != NULL ? env : "", kind_wants[setting->kind]);
}

bool comm_ask_wanted(void)
{
	const char *value = getenv(COMM_ASK_ENV);

	return value == NULL || flag_of(value) != 0;
}

int comm_check_config(const struct winnow_config *c, struct why *why)
{
	const char *ask = getenv(COMM_ASK_ENV);
	struct winnow_config unused = {0};
	int result = file_read(&unused, why);

	if (result != WINNOW_OK)
		return result;
	if (c->aggregators == NULL)
		return why_set(why, WINNOW_ERR_INVALID,
		               "no aggregator given: set WINNOW_AGGREGATORS=HOST:PORT");
	if (c->job == NULL || !message_name_valid(c->job))
		return why_set(why, WINNOW_ERR_INVALID,
		               "job name '%.80s': want 1 to 64 letters, digits, '.', '_' or '-'",
		               c->job != NULL ? c->job : "");
	for (size_t i = 0; i < SETTING_COUNT && result == WINNOW_OK; i++)
		result = check_setting(c, &settings[i], why);
	if (result != WINNOW_OK)
		return result;
	if (ask != NULL && flag_of(ask) == NO_FLAG)
		return why_set(why, WINNOW_ERR_INVALID, COMM_ASK_ENV " is '%.80s': want yes or no",
		               ask);
	if (c->rank >= c->world)
		return why_set(why, WINNOW_ERR_INVALID, "rank is %u: want 0 to %u, below world",
		               c->rank, c->world - 1);
	if (c->insecure_no_key && (c->key_file != NULL || c->key != NULL))
		return why_set(why, WINNOW_ERR_INVALID,
		               "insecure_no_key contradicts a key: give one of them");
	if (!c->insecure_no_key && c->key_file == NULL && c->key == NULL)
		return why_set(why, WINNOW_ERR_INVALID,
		               "no job key: set WINNOW_KEY_FILE or WINNOW_KEY, or, when winnowd runs "
		               "with --insecure-no-key, WINNOW_INSECURE_NO_KEY=1");
	return WINNOW_OK;
}
