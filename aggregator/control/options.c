// SPDX-License-Identifier: BSD-3-Clause
/* options.c - see options.h */

#include "aggregator/control/options_impl.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* A number with a unit; no sign, no surroundings. */
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

int option_rate(const char *text, uint64_t *out)
{
	return whole_read(text, rate_units, out);
}

int option_count(const char *text, uint64_t *out)
{
	return strpbrk(text, ".eEpPxX") != NULL ? -EINVAL : whole_read(text, plain_units, out);
}

int option_flag(const char *text, bool *out)
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

/* Kinds that are numbers; and what people are told to give. */
static const struct {
	const struct unit *units;
	const char *wanted;
} kinds[] = {
	[OPTION_COUNT] = {plain_units, "a whole number"},
	[OPTION_SIZE] = {size_units, "a size such as 64K, 100M or 2G"},
	[OPTION_RATE] = {rate_units, "a rate such as 100M or 10G (bit/s)"},
	[OPTION_TIME] = {time_units, "a time such as 10s, 500ms or 2m"},
	[OPTION_REAL] = {plain_units, "a number such as 0.1"},
	[OPTION_FLAG] = {NULL, "yes or no"},
};

/* 0; -EINVAL: not of the kind; -ERANGE: beyond the limits. */
static int value_set(const struct option *option, const char *text)
{
	double number = 0;
	uint64_t whole = 0;
	int err;

	if (option->kind == OPTION_TEXT || option->kind == OPTION_SECRET) {
		*(const char **)option->out = text;
		return 0;
	}
	if (option->kind == OPTION_FLAG)
		return option_flag(text, option->out);
	if (option->kind == OPTION_REAL)
		err = number_read(text, plain_units, &number);
	else if (option->kind == OPTION_COUNT)
		err = option_count(text, &whole);
	else
		err = whole_read(text, kinds[option->kind].units, &whole);
	if (err != 0)
		return err;
	if (option->kind != OPTION_REAL)
		number = (double)whole;
	if (number < option->min || (option->max > 0 && number > option->max))
		return -ERANGE;
	if (option->kind == OPTION_REAL)
		*(double *)option->out = number;
	else
		*(uint64_t *)option->out = whole;
	return 0;
}

/* A limit as the user would write it. */
static void limit_text(const struct option *option, double limit, char *text, size_t room)
{
	if (option->kind == OPTION_TIME)
		snprintf(text, room, "%gs", limit / 1e6);
	else if (option->kind == OPTION_SIZE && limit >= 1048576)
		snprintf(text, room, "%gM", limit / 1048576);
	else
		snprintf(text, room, "%.15g", limit);
}

static int complain(const struct options *options, const struct option *option, const char *where,
                    const char *text, int err)
{
	char low[32], high[32];

	if (err == -ERANGE) {
		limit_text(option, option->min, low, sizeof(low));
		limit_text(option, option->max, high, sizeof(high));
		if (option->max > 0)
			fprintf(stderr, "%s: %s is %s: want %s to %s\n", options->program, where,
			        text, low, high);
		else
			fprintf(stderr, "%s: %s is %s: want at least %s\n", options->program, where,
			        text, low);
	} else {
		fprintf(stderr, "%s: %s is '%s': want %s\n", options->program, where, text,
		        kinds[option->kind].wanted);
	}
	return 2;
}

/* ---- names ---- */

static const struct option *find(const struct options *options, const char *name)
{
	for (const struct option *o = options->list; o->name != NULL; o++)
		if (strcmp(o->name, name) == 0)
			return o;
	return NULL;
}

static const struct option *find_letter(const struct options *options, char letter)
{
	for (const struct option_letter *l = options->letters; l != NULL && l->name != NULL; l++)
		if (l->letter == letter)
			return find(options, l->name);
	return NULL;
}

/* Letters to change, add or drop to make `b` of `a`; short words only. */
static uint32_t distance(const char *a, const char *b)
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

static const char *nearest(const struct options *options, const char *name)
{
	const char *best = NULL;
	uint32_t least = 3;

	for (const struct option *o = options->list; o->name != NULL; o++) {
		if (distance(o->name, name) < least) {
			least = distance(o->name, name);
			best = o->name;
		}
	}
	return best;
}

static int unknown(const struct options *options, const char *prefix, const char *name)
{
	const char *hint = nearest(options, name);

	if (hint != NULL)
		fprintf(stderr, "%s: no option %s%s; did you mean %s%s?\n", options->program,
		        prefix, name, prefix, hint);
	else
		fprintf(stderr, "%s: no option %s%s; see %s --help\n", options->program, prefix,
		        name, options->program);
	return 2;
}

/* ---- sources, weakest first ---- */

/* One reading of all sources. */
struct reading {
	const struct options *options;
	struct origin origins[OPTIONS_MAX]; /* by place in the list */
	bool dump;
};

static void note(struct reading *reading, const struct option *option, const char *text,
                 const char *where)
{
	struct origin *origin = &reading->origins[option - reading->options->list];

	free(origin->owned);
	origin->owned = NULL;
	origin->text = text;
	snprintf(origin->where, sizeof(origin->where), "%s", where);
}

static int presets_read(struct reading *reading)
{
	const struct options *options = reading->options;

	for (const struct option *o = options->list; o->name != NULL; o++) {
		int err = o->preset != NULL ? value_set(o, o->preset) : 0;

		assert(o - options->list < OPTIONS_MAX);
		if (err != 0)
			return complain(options, o, o->name, o->preset, err);
		note(reading, o, o->preset, o->preset != NULL ? "default" : "not set");
	}
	return 0;
}

struct file_context {
	struct reading *reading;
	const char *path;
	int status;
};

static int file_line(void *context, const char *section, const char *name, const char *value)
{
	struct file_context *file = context;
	const struct options *options = file->reading->options;
	const struct option *option = find(options, name);
	char where[OPTION_NAME_BYTES + 300];
	char *kept;
	int err;

	if (section[0] != '\0' && strcmp(section, options->section) != 0)
		return 1; /* another program's */
	if (file->status != 0)
		return 0; /* the parser goes on, but the first error is said */
	snprintf(where, sizeof(where), "%s in %s", name, file->path);
	if (option == NULL) {
		snprintf(where, sizeof(where), "%s: ", file->path);
		file->status = unknown(options, where, name);
		return 0;
	}
	kept = strdup(value);
	err = kept != NULL ? value_set(option, kept) : -ENOMEM;
	if (err != 0) {
		file->status = complain(options, option, where, value, err);
		free(kept);
		return 0;
	}
	note(file->reading, option, kept, file->path);
	if (option->kind != OPTION_TEXT && option->kind != OPTION_SECRET)
		file->reading->origins[option - options->list].owned = kept;
	return 1;
}

static int file_read(struct reading *reading, const char *path)
{
	struct file_context context = {.reading = reading, .path = path};
	const struct options *options = reading->options;
	int err = ini_parse(path, file_line, &context);

	if (context.status != 0)
		return context.status;
	if (err == 0)
		return 0;
	if (err < 0)
		fprintf(stderr, "%s: cannot read %s: %s\n", options->program, path,
		        strerror(errno));
	else
		fprintf(stderr, "%s: %s, line %d: want \"name = value\" or \"[section]\"\n",
		        options->program, path, err);
	return 2;
}

static const char *env_value(const struct option *option, char *name)
{
	size_t used = (size_t)sprintf(name, "WINNOW_");
	const char *value;

	for (const char *c = option->name; *c != '\0' && used + 1 < OPTION_NAME_BYTES; c++)
		name[used++] = (char)(*c == '-' ? '_' : toupper((unsigned char)*c));
	name[used] = '\0';
	value = getenv(name);
	if (value != NULL || option->env_alias == NULL)
		return value;
	strcpy(name, option->env_alias);
	return getenv(name);
}

static int env_read(struct reading *reading)
{
	const struct options *options = reading->options;

	for (const struct option *o = options->list; o->name != NULL; o++) {
		char name[OPTION_NAME_BYTES];
		const char *value = env_value(o, name);
		int err = value != NULL ? value_set(o, value) : 0;

		if (err != 0)
			return complain(options, o, name, value, err);
		if (value != NULL)
			note(reading, o, value, name);
	}
	return 0;
}

/* `where`: how the option was named. `value` NULL: it has none. */
static int value_read(struct reading *reading, const struct option *option, const char *where,
                      const char *value)
{
	const struct options *options = reading->options;
	int err;

	if (value == NULL) {
		fprintf(stderr, "%s: %s wants a value: %s\n", options->program, where,
		        option->value);
		return 2;
	}
	err = value_set(option, value);
	if (err != 0)
		return complain(options, option, where, value, err);
	note(reading, option, value, "command line");
	return 0;
}

/* --name VALUE, --name=VALUE, --flag. */
static int argument_read(struct reading *reading, int argc, char **argv, int *at)
{
	const struct options *options = reading->options;
	char name[OPTION_NAME_BYTES], where[OPTION_NAME_BYTES + 2];
	const char *text = argv[*at] + 2, *value = strchr(text, '=');
	size_t length = value != NULL ? (size_t)(value - text) : strlen(text);
	const struct option *option;

	snprintf(name, sizeof(name), "%.*s", (int)length, text);
	option = length < sizeof(name) ? find(options, name) : NULL;
	if (option == NULL)
		return unknown(options, "--", name);
	if (value != NULL)
		value++;
	else if (option->kind == OPTION_FLAG)
		value = "1";
	else if (*at + 1 < argc)
		value = argv[++*at];
	snprintf(where, sizeof(where), "--%s", name);
	return value_read(reading, option, where, value);
}

/* -b VALUE, -bVALUE. */
static int letter_read(struct reading *reading, const struct option *option, int argc, char **argv,
                       int *at)
{
	const char where[] = {'-', argv[*at][1], '\0'};
	const char *value = argv[*at] + 2;

	assert(option->kind != OPTION_FLAG);
	if (*value == '\0')
		value = *at + 1 < argc ? argv[++*at] : NULL;
	return value_read(reading, option, where, value);
}

static int operand_read(const struct options *options, const char *text)
{
	if (text[0] == '-' || options->operand_max == 0) {
		fprintf(stderr, "%s: '%s' is not an option; see %s --help\n", options->program,
		        text, options->program);
		return 2;
	}
	if (*options->operand_count == options->operand_max) {
		fprintf(stderr, "%s: more than %u arguments; see %s --help\n", options->program,
		        options->operand_max, options->program);
		return 2;
	}
	options->operands[(*options->operand_count)++] = text;
	return 0;
}

static int arguments_read(struct reading *reading, int argc, char **argv)
{
	const struct options *options = reading->options;
	const struct option *option;
	int status = 0;

	if (options->operand_count != NULL)
		*options->operand_count = 0;
	for (int i = 1; i < argc && status == 0; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			options_help(options);
			return 1;
		}
		if (strcmp(argv[i], "--version") == 0) {
			printf("%s %s%s\n", options->program, WINNOW_VERSION,
			       options->built_with != NULL ? options->built_with() : "");
			return 1;
		}
		if (strcmp(argv[i], "--dump-config") == 0)
			reading->dump = true;
		else if (argv[i][0] == '-' && (option = find_letter(options, argv[i][1])) != NULL)
			status = letter_read(reading, option, argc, argv, &i);
		else if (strncmp(argv[i], "--", 2) != 0 || argv[i][2] == '\0')
			status = operand_read(options, argv[i]);
		else
			status = argument_read(reading, argc, argv, &i);
	}
	return status;
}

static int sources_read(struct reading *reading, int argc, char **argv)
{
	const struct options *options = reading->options;
	const struct option *file =
		options->file_option != NULL ? find(options, options->file_option) : NULL;
	int status = presets_read(reading);

	/* Once to find the file's name, and once more over what the file says. */
	if (status == 0)
		status = env_read(reading);
	if (status == 0)
		status = arguments_read(reading, argc, argv);
	if (status != 0 || file == NULL || *(const char **)file->out == NULL)
		return status;
	status = file_read(reading, *(const char **)file->out);
	if (status == 0)
		status = env_read(reading);
	if (status == 0)
		status = arguments_read(reading, argc, argv);
	return status;
}

int options_read(const struct options *options, int argc, char **argv)
{
	struct reading reading = {.options = options};
	int status = sources_read(&reading, argc, argv);

	if (status == 0 && reading.dump) {
		options_dump(options, reading.origins);
		status = 1;
	}
	for (uint32_t i = 0; i < OPTIONS_MAX; i++)
		free(reading.origins[i].owned);
	return status;
}
