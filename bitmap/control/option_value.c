// SPDX-License-Identifier: BSD-3-Clause
/* option_value.c - one option's value, from text to memory and within its range; see options.h */

#include "bitmap/control/options_impl.h"

#include <assert.h>
#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct unit {
	const char *name;
	double factor;
};

static const struct unit size_units[] = {{"", 1},           {"B", 1},          {"K", 1024},
                                         {"k", 1024},       {"M", 1048576},    {"m", 1048576},
                                         {"G", 1073741824}, {"g", 1073741824}, {NULL, 0}};
static const struct unit rate_units[] = {{"", 1},    {"K", 1e3},  {"M", 1e6},
                                         {"G", 1e9}, {"T", 1e12}, {NULL, 0}};
static const struct unit time_units[] = {{"", 1e6}, {"s", 1e6},  {"ms", 1e3},
                                         {"us", 1}, {"m", 60e6}, {NULL, 0}};
static const struct unit plain_units[] = {{"", 1}, {NULL, 0}};

/* Reads a number with a unit. No sign and no blanks are allowed. */
static int number_read(const char *text, const struct unit *units, double *out)
{
	char *end;
	double value;

	if (!isdigit((unsigned char)text[0]) && text[0] != '.')
		return -EINVAL;
	errno = 0;
	value = strtod(text, &end);
	if (errno != 0 || !isfinite(value))
		return -EINVAL;
	for (; units->name != NULL; units++) {
		if (strcmp(end, units->name) != 0)
			continue;
		*out = value * units->factor;
		return 0;
	}
	return -EINVAL;
}

static int whole_read(const char *text, const struct unit *units, uint64_t *out)
{
	double value;

	if (number_read(text, units, &value) != 0 || value > 9e18)
		return -EINVAL;
	*out = (uint64_t)(value + 0.5);
	return 0;
}

int option_size(const char *text, uint64_t *out)
{
	return whole_read(text, size_units, out);
}

static int option_count(const char *text, uint64_t *out)
{
	return strpbrk(text, ".eEpPxX") != NULL ? -EINVAL : whole_read(text, plain_units, out);
}

static int option_flag(const char *text, bool *out)
{
	static const char *const names[] = {"1",  "yes",   "true", "on", "0",
	                                    "no", "false", "off",  ""};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(text, names[i]) != 0)
			continue;
		*out = i < 4;
		return 0;
	}
	return -EINVAL;
}

bool option_is_off(const char *text)
{
	bool on;

	return option_flag(text, &on) == 0 && !on;
}

bool option_is_on(const char *text)
{
	bool on;

	return option_flag(text, &on) == 0 && on;
}

const char *option_bare(const char *text, size_t *length)
{
	for (; *length > 0 && strchr(OPTION_BLANKS, *text) != NULL; text++)
		--*length;
	while (*length > 0 && strchr(OPTION_BLANKS, text[*length - 1]) != NULL)
		--*length;
	return text;
}

const char *option_item(const char *list, char *item, size_t room)
{
	size_t whole = strcspn(list, ","), length = whole;
	const char *bare = option_bare(list, &length);

	snprintf(item, room, "%.*s", (int)length, bare);
	return list[whole] == ',' ? list + whole + 1 : NULL;
}

/* Accepts names of RFC 2474, 2597, 3246, 5865, 8622 (such as "cs1", "af21", "ef") and numbers. */
static int option_dscp(const char *text, uint64_t *out)
{
	static const struct {
		const char *name;
		uint8_t value;
	} names[] = {{"df", 0}, {"le", 1}, {"va", 44}, {"ef", 46}};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcasecmp(text, names[i].name) != 0)
			continue;
		*out = names[i].value;
		return 0;
	}
	if (strncasecmp(text, "cs", 2) == 0 && text[2] >= '0' && text[2] <= '7' && text[3] == '\0')
		*out = 8u * (unsigned)(text[2] - '0');
	else if (strncasecmp(text, "af", 2) == 0 && text[2] >= '1' && text[2] <= '4' &&
	         text[3] >= '1' && text[3] <= '3' && text[4] == '\0')
		*out = 8u * (unsigned)(text[2] - '0') + 2u * (unsigned)(text[3] - '0');
	else
		return option_count(text, out);
	return 0;
}

/* Returns which of "f32,float|f16,half" the text is, counted from 0, or -1. */
static int choice_of(const char *choices, const char *text)
{
	size_t length = strlen(text), name;
	int index = 0;

	for (const char *at = choices; *at != '\0'; at += at[name] == '\0' ? name : name + 1) {
		name = strcspn(at, ",|");
		if (length > 0 && name == length && strncmp(at, text, length) == 0)
			return index;
		index += at[name] == '|';
	}
	return -1;
}

void option_choices(const char *choices, const char *between, const char *last, char *text,
                    size_t room)
{
	*text = '\0';
	for (const char *at = choices, *next; at != NULL; at = next) {
		next = strchr(at, '|');
		next = next != NULL ? next + 1 : NULL;
		text_add(text, room, "%s%.*s",
		         at == choices  ? ""
		         : next != NULL ? between
		                        : last,
		         (int)strcspn(at, ",|"), at);
	}
}

/* The units of each kind's numbers, what the error text asks for, and the size of *out. */
static const struct {
	const struct unit *units;
	const char *wanted;
	size_t bytes;
} kinds[] = {
	[OPTION_COUNT] = {plain_units, "a whole number", sizeof(uint64_t)},
	[OPTION_COUNT32] = {plain_units, "a whole number", sizeof(uint32_t)},
	[OPTION_SIZE] = {size_units, "a size such as 64K, 100M or 2G", sizeof(uint64_t)},
	[OPTION_SIZE32] = {size_units, "a size such as 1400 or 8K", sizeof(uint32_t)},
	[OPTION_RATE] = {rate_units, "a rate such as 100M or 10G (bit/s)", sizeof(uint64_t)},
	[OPTION_TIME] = {time_units, "a time such as 10s, 500ms or 2m", sizeof(uint64_t)},
	[OPTION_MS] = {time_units, "a time such as 10s, 500ms or 2m", sizeof(uint32_t)},
	[OPTION_REAL] = {plain_units, "a number such as 0.1", sizeof(double)},
	[OPTION_FLAG] = {NULL, "yes or no", sizeof(bool)},
	[OPTION_INT_FLAG] = {NULL, "yes or no", sizeof(int)},
	[OPTION_DSCP] = {NULL, "a number, or a name such as cs1, af21, ef or le", sizeof(uint32_t)},
	[OPTION_CHOICE] = {NULL, NULL, sizeof(int)},
};

bool option_is_text(const struct option *option)
{
	return option->kind == OPTION_TEXT || option->kind == OPTION_SECRET;
}

bool option_is_flag(const struct option *option)
{
	return option->kind == OPTION_FLAG || option->kind == OPTION_INT_FLAG;
}

bool option_is_argument(const struct option *option)
{
	return option->env_alias != NULL && strcmp(option->env_alias, OPTION_ARGUMENT) == 0;
}

/* Tells whether the user called the option "NAME-ms" or "WINNOW_NAME_MS". */
static bool is_plain_ms(const struct option *option, const char *named)
{
	size_t length = strlen(named);

	return option->kind == OPTION_MS && length > 3 &&
	       (strcmp(named + length - 3, "-ms") == 0 || strcmp(named + length - 3, "_MS") == 0);
}

static int number_parse(const struct option *option, bool plain_ms, const char *text, double *out)
{
	uint64_t whole = 0;
	bool flag = false;
	int err;

	if (option->kind == OPTION_REAL)
		return number_read(text, plain_units, out);
	if (option->kind == OPTION_CHOICE) {
		*out = option->min + choice_of(option->value, text);
		return *out < option->min ? -EINVAL : 0;
	}
	if (option_is_flag(option)) {
		err = option_flag(text, &flag);
		whole = flag;
	} else if (option->kind == OPTION_DSCP) {
		err = option_dscp(text, &whole);
	} else if (plain_ms || kinds[option->kind].units == plain_units) {
		err = option_count(text, &whole);
	} else {
		err = whole_read(text, kinds[option->kind].units, &whole);
		whole = option->kind == OPTION_MS ? (whole + 500) / 1000 : whole;
	}
	*out = (double)whole;
	return err;
}

static void number_store(const struct option *option, double number)
{
	uint64_t whole = htole64((uint64_t)number); /* its first bytes are the lowest */

	memcpy(option->out, option->kind == OPTION_REAL ? (const void *)&number : &whole,
	       kinds[option->kind].bytes);
}

static bool in_range(const struct option *option, double number)
{
	if (number == 0 && option->preset != NULL && strcmp(option->preset, "0") == 0)
		return true;
	return number >= option->min && (option->max <= 0 || number <= option->max);
}

/* Writes a limit as the user would. */
static void limit_text(const struct option *option, bool plain, double limit, char *text,
                       size_t room)
{
	if (option->kind == OPTION_TIME)
		snprintf(text, room, "%gs", limit / 1e6);
	else if (option->kind == OPTION_MS && !plain)
		snprintf(text, room, "%gs", limit / 1e3);
	else if (option->kind == OPTION_SIZE && limit >= 1048576)
		snprintf(text, room, "%gM", limit / 1048576);
	else
		snprintf(text, room, "%.15g", limit);
}

/* For example "NAME is 7: want 1 to 5, or 0". */
static int range_tell(const struct option *option, bool plain, const char *where, const char *text,
                      struct why *why)
{
	const char *or_0 =
		option->preset != NULL && strcmp(option->preset, "0") == 0 && option->min > 0
			? ", or 0"
			: "";
	char low[32], high[32];

	limit_text(option, plain, option->min, low, sizeof(low));
	limit_text(option, plain, option->max, high, sizeof(high));
	if (option->max > 0)
		return why_set(why, -ERANGE, "%s is %s: want %s to %s%s", where, text, low, high,
		               or_0);
	return why_set(why, -ERANGE, "%s is %s: want at least %s%s", where, text, low, or_0);
}

int option_set(const struct option *option, const char *named, const char *text, struct why *why)
{
	const bool plain_ms = is_plain_ms(option, named);
	char choices[200];
	double number = 0;
	int err;

	if (option_is_text(option)) {
		*(const char **)option->out = text;
		return 0;
	}
	assert(kinds[option->kind].bytes != sizeof(uint32_t) || option_is_flag(option) ||
	       option->max > 0);
	err = number_parse(option, plain_ms, text, &number);
	if (err == 0 && in_range(option, number)) {
		number_store(option, number);
		return 0;
	}
	memset(option->out, 0xff, kinds[option->kind].bytes);
	if (err == 0)
		return range_tell(option, plain_ms, named, text, why);
	option_choices(option->value, ", ", " or ", choices, sizeof(choices));
	return why_set(why, -EINVAL, "%s is '%.200s': want %s", named, text,
	               option->kind == OPTION_CHOICE ? choices
	               : plain_ms                    ? "a whole number of milliseconds"
	                                             : kinds[option->kind].wanted);
}

static uint32_t option_held(const struct option *option)
{
	uint32_t value;

	assert(kinds[option->kind].bytes == sizeof(value));
	memcpy(&value, option->out, sizeof(value));
	return value;
}

bool option_is_wrong(const struct option *option)
{
	return !option_is_text(option) && option_held(option) == UINT32_MAX;
}

int option_range(const struct option *option, struct why *why)
{
	char name[OPTION_NAME_BYTES], text[24];

	if (option_is_text(option) || option_is_flag(option) ||
	    in_range(option, option_held(option)))
		return 0;
	snprintf(name, sizeof(name), "%s%s", option->name, option->kind == OPTION_MS ? "-ms" : "");
	snprintf(text, sizeof(text), "%u", option_held(option));
	return range_tell(option, true, name, text, why);
}
