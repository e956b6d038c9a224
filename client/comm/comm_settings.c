// SPDX-License-Identifier: BSD-3-Clause
/*
 * comm_settings.c - struct winnow_config: defaults, WINNOW_CONFIG, the environment, and whether it is possible
 *
 * WINNOW_CONFIG names an INI file, which winnow tune writes: "block = 128" under [winnow]. Other sections are for other
 * programs, because winnowd and the winnow command can read the same file. It says how to reduce, not with whom: it has
 * no addresses and no keys.
 */

#include <stdlib.h>
#include <string.h>

#include "client/comm/comm_state.h"
#include "client/comm/comm_options.h"

#define SETTINGS_MAX 32

/*
 * Fills `out` with a table of the settings of `c`. First come those that only the environment and the caller may set. The
 * rest, which the file may also set, is returned.
 */
static const struct option *settings_of(struct winnow_config *c, struct option out[SETTINGS_MAX])
{
	const struct option who[] = {
		{"aggregators", "HOST:PORT[,..]", OPTION_TEXT, &c->aggregators, NULL, NULL, 0, 0,
	         "aggregators, the same list on all workers"},
		{"job", "NAME", OPTION_TEXT, &c->job, "default", NULL, 0, 0, "job to join"},
		COMM_OPTIONS_RANK(*c),
		COMM_OPTIONS_KEY(*c),
		COMM_OPTIONS_PORT(*c),
	};
	const struct option how[] = {
		COMM_OPTIONS_HOW(*c),
		{"staging-mb", "MB", OPTION_COUNT32, &c->staging_mb, "64", NULL, 0, 1 << 20,
	         "pinned memory for each GPU"},
		{"memory-mb", "MB", OPTION_COUNT32, &c->memory_mb, "2048", NULL, 1, 1 << 20,
	         "the most memory that what aggregators grant may take here"},
		{0},
	};

	_Static_assert(sizeof(who) + sizeof(how) <= SETTINGS_MAX * sizeof(out[0]),
	               "the table holds all entries");
	memcpy(out, who, sizeof(who));
	return memcpy(out + sizeof(who) / sizeof(who[0]), how, sizeof(how));
}

static int file_read(const struct option how[], struct why *why)
{
	const struct options options = {.list = how, .section = "winnow"};
	const char *path = secure_getenv("WINNOW_CONFIG");

	if (path == NULL || path[0] == '\0' || options_file(&options, path, why) == 0)
		return WINNOW_OK;
	return why_set(why, WINNOW_ERR_INVALID, "WINNOW_CONFIG: %s", why->text);
}

void winnow_config_init(struct winnow_config *config)
{
	struct option settings[SETTINGS_MAX];
	const struct option *how;
	struct why unused; /* winnow_comm_create() says what is still wrong then */

	*config = (struct winnow_config){0};
	how = settings_of(config, settings);
	options_preset(settings);
	(void)file_read(how, &unused);
	for (const struct option *o = settings; o->name != NULL; o++)
		(void)option_env(o, &unused);
}

/* ---- checking ---- */

static int check_values(const struct winnow_config *config, struct why *why)
{
	struct winnow_config copy = *config, from_file = *config;
	struct option settings[SETTINGS_MAX];
	int result = file_read(settings_of(&from_file, settings), why);

	if (result != WINNOW_OK)
		return result;
	settings_of(&copy, settings);
	for (const struct option *o = settings; o->name != NULL; o++)
		if (option_check(o, why) != 0)
			return WINNOW_ERR_INVALID;
	return WINNOW_OK;
}

int comm_check_config(const struct winnow_config *c, struct why *why)
{
	int result;

	if (c->aggregators == NULL)
		return why_set(why, WINNOW_ERR_INVALID,
		               "no aggregator given: set WINNOW_AGGREGATORS=HOST:PORT");
	if (c->job == NULL || !message_name_valid(c->job))
		return why_set(why, WINNOW_ERR_INVALID,
		               "job name '%.80s': want 1 to 64 letters, digits, '.', '_' or '-'",
		               c->job != NULL ? c->job : "");
	result = check_values(c, why);
	if (result != WINNOW_OK)
		return result;
	if (bitmap_isa_check(why) != 0)
		return WINNOW_ERR_INVALID;
	if (c->rank >= c->world)
		return why_set(why, WINNOW_ERR_INVALID,
		               "rank is %u: want 0 to %u, below world (RANK and WORLD_SIZE)",
		               c->rank, c->world - 1);
	if (c->insecure_no_key && (c->key_file != NULL || c->key != NULL))
		return why_set(why, WINNOW_ERR_INVALID,
		               "insecure_no_key contradicts a key: give one of them");
	if (c->key_file != NULL && c->key != NULL)
		return why_set(why, WINNOW_ERR_INVALID,
		               "there is a key and a key file (%.100s), perhaps from the "
		               "environment: give one of them",
		               c->key_file);
	if (!c->insecure_no_key && c->key_file == NULL && c->key == NULL)
		return why_set(
			why, WINNOW_ERR_INVALID,
			"no job key: set WINNOW_KEY_FILE or WINNOW_KEY, or, when winnowd runs "
			"with --insecure-no-key, WINNOW_INSECURE_NO_KEY=1");
	return WINNOW_OK;
}
