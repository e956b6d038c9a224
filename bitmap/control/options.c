// SPDX-License-Identifier: BSD-3-Clause
/* options.c - names, and the sources of values: file, environment, command line; see options.h */

#include "bitmap/control/secrets.h"
#include "bitmap/control/options_impl.h"
#include "bitmap/control/plain_file.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- names ---- */

/* An option that counts milliseconds also goes by "NAME-ms", and is then a plain number. */
static const struct option *option_find(const struct option list[], const char *name)
{
	for (const struct option *o = list; o->name != NULL; o++) {
		size_t length = strlen(o->name);

		if (strncmp(o->name, name, length) == 0 &&
		    (name[length] == '\0' ||
		     (o->kind == OPTION_MS && strcmp(name + length, "-ms") == 0)))
			return o;
	}
	return NULL;
}

static bool is_plain_ms(const struct option *option, const char *name)
{
	return strcmp(option->name, name) != 0;
}

/* As "--np VALUE", "--np=VALUE", "-n VALUE" or "-nVALUE". `value`: what this word has of it, or NULL. */
static const struct option_alias *find_alias(const struct options *options, const char *word,
                                             const char **value)
{
	for (const struct option_alias *a = options->aliases; a != NULL && a->said != NULL; a++) {
		size_t length = strlen(a->said);
		const char *rest = word + length;
		bool letter = length == 2;

		if (strncmp(word, a->said, length) != 0 ||
		    (*rest != '\0' && !letter && *rest != '='))
			continue;
		*value = *rest == '\0' ? NULL : rest + !letter;
		return a;
	}
	return NULL;
}

/* `at` says where the name stands, `prefix` how it is written there. */
static int name_refuse(const struct options *options, const char *at, const char *prefix,
                       const char *name, struct why *why)
{
	const char *hint = NULL, *now = option_renamed(name);

	if (now != NULL && option_find(options->list, now) != NULL)
		return why_set(why, -ENOENT, "%s%s%s is now called %s%s", at, prefix, name, prefix,
		               now);
	for (const struct option *o = options->list; o->name != NULL; o++)
		hint = option_nearer(name, hint, o->name);
	if (hint != NULL)
		return why_set(why, -ENOENT, "%sno option %s%s; did you mean %s%s?", at, prefix,
		               name, prefix, hint);
	return why_set(why, -ENOENT, "%sno option %s%s; see %s%s", at, prefix, name,
	               options->program != NULL ? options->program : "winnow.h",
	               options->program != NULL ? " --help" : "");
}

/* Programs may share a file; what stands in a section that none of them has would go unheard. */
static int section_check(const struct options *options, const char *at, const char *section,
                         struct why *why)
{
	static const char *const all[] = {"winnow", "winnowd", "bench",  "colocate", "doctor",
	                                  "job",    "run",     "status", "tune"};
	const char *hint = option_nearer(section, NULL, options->section);

	if (strcmp(section, options->section) == 0)
		return 0;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (strcmp(section, all[i]) == 0)
			return 0;
		hint = option_nearer(section, hint, all[i]);
	}
	if (hint != NULL)
		return why_set(why, -ENOENT, "%sno section [%s]; did you mean [%s]?", at, section,
		               hint);
	return why_set(why, -ENOENT, "%sno section [%s]; ours is [%s]", at, section,
	               options->section);
}

/* ---- sources ---- */

/* One reading of all sources. */
struct reading {
	const struct options *options;
	struct origin origins[OPTIONS_MAX]; /* by place in the list */
	bool dump;
	struct why why; /* what is wrong */
};

static struct origin *origin_of(struct reading *reading, const struct option *option)
{
	return &reading->origins[option - reading->options->list];
}

/* A key may be in it. */
static void origin_free(struct origin *origin)
{
	if (origin->copy != NULL && !origin->stays) {
		explicit_bzero(origin->copy, strlen(origin->copy));
		free(origin->copy);
	}
}

/* A key's surroundings are key_text.h's: a copy of it would be one more to wipe. */
static bool is_surrounded(const struct option *option, const char *value)
{
	size_t length = strlen(value);

	return option->kind != OPTION_SECRET && length > 0 &&
	       (strchr(OPTION_BLANKS, value[0]) != NULL ||
	        strchr(OPTION_BLANKS, value[length - 1]) != NULL);
}

static char *text_trimmed(const char *value)
{
	size_t length;

	value += strspn(value, OPTION_BLANKS);
	length = strlen(value);
	while (length > 0 && strchr(OPTION_BLANKS, value[length - 1]) != NULL)
		length--;
	return strndup(value, length);
}

/*
 * A source gives a value, unless a stronger one has given another. `named`: what it calls the
 * option, for the error text; `where`: for the dump.
 */
static int value_take(struct reading *reading, const struct option *option, enum source source,
                      bool plain_ms, const char *named, const char *where, const char *value)
{
	struct origin *origin = origin_of(reading, option);
	bool trims = source == SOURCE_ENVIRONMENT && is_surrounded(option, value);
	char *copy = NULL;
	int err;

	if (source < origin->source)
		return 0;
	if (source == SOURCE_FILE || trims) { /* the parser's memory does not last */
		copy = trims ? text_trimmed(value) : strdup(value);
		if (copy == NULL)
			return why_set(&reading->why, -ENOMEM, "out of memory");
		value = copy;
	}
	err = option_set(option, plain_ms, named, value, &reading->why);
	origin_free(origin);
	*origin = (struct origin){.source = source,
	                          .text = value,
	                          .copy = copy,
	                          .stays = err == 0 && option_is_text(option)};
	snprintf(origin->where, sizeof(origin->where), "%s", where);
	return err;
}

void options_preset(const struct option list[])
{
	struct why why;

	for (const struct option *o = list; o->name != NULL; o++) {
		int err = o->preset != NULL ? option_set(o, false, o->name, o->preset, &why) : 0;

		assert(err == 0);
	}
}

struct file_context {
	struct reading *reading;
	const char *path;
	struct plain_file file;
	uint32_t line;           /* The last line that was read. */
	uint32_t section_line;   /* The last line that begins a section. */
	bool given[OPTIONS_MAX]; /* By place in the list: an earlier line has set it. */
	int err;
};

/* As fgets(). The parser would take the rest of a line that it has no room for for another line. */
static char *file_next(char *line, int room, void *context)
{
	struct file_context *file = context;
	const char *next = file->err == 0 ? plain_file_line(&file->file) : NULL;

	if (next == NULL)
		return NULL;
	file->line++;
	if (next[strspn(next, " \t")] == '[')
		file->section_line = file->line;
	if (snprintf(line, (size_t)room, "%s\n", next) < room)
		return line;
	file->err = why_set(&file->reading->why, -EINVAL,
	                    "%s, line %u is too long: at most %d characters; a longer value can be "
	                    "in the environment",
	                    file->path, file->line, room - 2);
	return NULL;
}

static int file_line(void *context, const char *section, const char *name, const char *value)
{
	struct file_context *file = context;
	struct reading *reading = file->reading;
	const struct options *options = reading->options;
	char at[300], named[OPTION_NAME_BYTES + sizeof(at)];
	const struct option *option;
	bool *given;

	if (file->err != 0)
		return 0; /* only the first error is reported */
	snprintf(at, sizeof(at), "%.250s, line %u: ", file->path, file->section_line);
	if (section[0] != '\0')
		file->err = section_check(options, at, section, &reading->why);
	if (file->err != 0)
		return 0;
	if (strcmp(section, options->section) != 0 &&
	    (section[0] != '\0' || options->program == NULL))
		return 1; /* another program's */
	snprintf(at, sizeof(at), "%.250s, line %u: ", file->path, file->line);
	option = option_find(options->list, name);
	given = option != NULL ? &file->given[option - options->list] : NULL;
	if (option == NULL) {
		file->err = name_refuse(options, at, "", name, &reading->why);
	} else if (option_is_argument(option)) {
		file->err = why_set(&reading->why, -EINVAL,
		                    "%s%s can stand on the command line alone", at, name);
	} else if (*given) {
		file->err = why_set(&reading->why, -EINVAL,
		                    "%san earlier line says %s; an indented line continues the one "
		                    "above it",
		                    at, option->name);
	} else {
		*given = true;
		snprintf(named, sizeof(named), "%s%s", at, name);
		file->err = value_take(reading, option, SOURCE_FILE, is_plain_ms(option, name),
		                       named, file->path, value);
	}
	return file->err == 0;
}

static int file_read(struct reading *reading, const char *path)
{
	struct file_context context = {.reading = reading, .path = path};
	int err = plain_file_read("", path, &context.file, &reading->why);

	if (err != 0)
		return err;
	err = ini_parse_stream(file_next, &context, file_line, &context);
	plain_file_free(&context.file);
	secrets_clear(); /* the parser's line may have been a key */
	if (err == 0 || context.err != 0)
		return context.err;
	if (err < 0)
		return why_set(&reading->why, -ENOMEM, "out of memory");
	return why_set(&reading->why, -EINVAL,
	               "%s, line %d: want \"name = value\" or \"[section]\"", path, err);
}

/*
 * NULL: the environment does not say. A variable that is empty, but for blanks, counts only for a flag, which is
 * then off.
 */
static const char *env_named(const struct option *option, const char *name)
{
	const char *value = secure_getenv(name);

	bool empty = value == NULL || value[strspn(value, OPTION_BLANKS)] == '\0';

	return value != NULL && (!empty || option_is_flag(option)) ? value : NULL;
}

/* "WINNOW_LOG_FORMAT" of "log-format"; returns its length. */
static size_t env_name(const char *option, char name[OPTION_NAME_BYTES])
{
	size_t used = (size_t)sprintf(name, "WINNOW_");

	for (const char *c = option; *c != '\0' && used + 4 < OPTION_NAME_BYTES; c++)
		name[used++] = (char)(*c == '-' ? '_' : toupper((unsigned char)*c));
	name[used] = '\0';
	return used;
}

static const char *env_value(const struct option *option, char name[OPTION_NAME_BYTES],
                             bool *plain_ms)
{
	const char *alias = option->env_alias, *value;
	size_t used;

	*plain_ms = false;
	if (option_is_argument(option))
		return NULL;
	if (alias != NULL && alias[0] == '=') {
		strcpy(name, alias + 1);
		return env_named(option, name);
	}
	used = env_name(option->name, name);
	value = env_named(option, name);
	if (value == NULL && option->kind == OPTION_MS) {
		strcpy(name + used, "_MS");
		*plain_ms = true;
		return env_named(option, name);
	}
	if (value != NULL || alias == NULL)
		return value;
	strcpy(name, alias);
	return env_named(option, name);
}

/* A library's settings point to it: the same text is kept once, however often the environment is read. */
static const char *text_kept(const char *value)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct text {
		struct text *before;
		char *text;
	} * last;
	char *text = text_trimmed(value);
	struct text *found, *made;

	if (text == NULL)
		return NULL;
	pthread_mutex_lock(&lock);
	for (found = last; found != NULL && strcmp(found->text, text) != 0;)
		found = found->before;
	if (found == NULL && (made = malloc(sizeof(*made))) != NULL) {
		*made = (struct text){.before = last, .text = text};
		found = last = made;
		text = NULL;
	}
	pthread_mutex_unlock(&lock);
	free(text);
	return found != NULL ? found->text : NULL;
}

int option_env(const struct option *option, struct why *why)
{
	char name[OPTION_NAME_BYTES];
	bool plain_ms;
	const char *value = env_value(option, name, &plain_ms);

	if (value != NULL && is_surrounded(option, value)) {
		value = text_kept(value);
		if (value == NULL)
			return why_set(why, -ENOMEM, "out of memory");
	}
	return value != NULL ? option_set(option, plain_ms, name, value, why) : 0;
}

static void env_warn(const struct options *options)
{
	char *const *at = environ;
	struct why why;

	while (!options->joins && option_stranger(&at, &why))
		fprintf(stderr, "%s: %s\n", options->program, why.text);
}

static int env_read(struct reading *reading)
{
	char name[OPTION_NAME_BYTES], now[OPTION_NAME_BYTES];
	int err = 0;

	for (const struct option *o = reading->options->list; o->name != NULL && err == 0; o++) {
		const char *old = option_old_variable(o->name), *value;
		bool plain_ms;

		if (old != NULL && env_name(old, name) > 0 && env_named(o, name) != NULL) {
			env_name(o->name, now);
			return why_set(&reading->why, -ENOENT, "%s is now called %s", name, now);
		}
		value = env_value(o, name, &plain_ms);
		if (value != NULL)
			err = value_take(reading, o, SOURCE_ENVIRONMENT, plain_ms, name, name,
			                 value);
	}
	return err;
}

/* `named`: how the option was named. `value` NULL: it has none. */
static int value_read(struct reading *reading, const struct option *option, bool plain_ms,
                      const char *named, const char *value)
{
	if (value == NULL)
		return why_set(&reading->why, -EINVAL, "%s wants a value: %s", named,
		               option->value);
	return value_take(reading, option, SOURCE_ARGUMENT, plain_ms, named, "command line", value);
}

/* Does no value of the option follow, though it may be left out? */
static bool value_left_out(const struct option *option, int argc, char **argv, int at)
{
	struct why why;

	return option->value[0] == '[' &&
	       (at + 1 == argc ||
	        option_set(option, false, option->name, argv[at + 1], &why) == -EINVAL);
}

/* --name VALUE, --name=VALUE, --flag. */
static int argument_read(struct reading *reading, int argc, char **argv, int *at)
{
	char name[OPTION_NAME_BYTES], where[OPTION_NAME_BYTES + 2];
	const char *text = argv[*at] + 2, *value = strchr(text, '=');
	size_t length = value != NULL ? (size_t)(value - text) : strlen(text);
	const struct option *option;

	snprintf(name, sizeof(name), "%.*s", (int)length, text);
	option = length < sizeof(name) ? option_find(reading->options->list, name) : NULL;
	if (option == NULL)
		return name_refuse(reading->options, "", "--", name, &reading->why);
	if (value != NULL)
		value++;
	else if (option_is_flag(option) || value_left_out(option, argc, argv, *at))
		value = "1";
	else if (*at + 1 < argc)
		value = argv[++*at];
	snprintf(where, sizeof(where), "--%s", name);
	return value_read(reading, option, is_plain_ms(option, name), where, value);
}

static int alias_read(struct reading *reading, const struct option_alias *alias, const char *value,
                      int argc, char **argv, int *at)
{
	const struct option *option = option_find(reading->options->list, alias->name);

	assert(!option_is_flag(option));
	if (value == NULL && *at + 1 < argc)
		value = argv[++*at];
	return value_read(reading, option, false, alias->said, value);
}

static int operand_read(struct reading *reading, const char *text)
{
	const struct options *options = reading->options;

	if (text[0] == '-' || options->operand_max == 0)
		return why_set(&reading->why, -EINVAL, "'%s' is not an option; see %s --help", text,
		               options->program);
	if (*options->operand_count == options->operand_max)
		return why_set(&reading->why, -EINVAL, "more than %u arguments; see %s --help",
		               options->operand_max, options->program);
	options->operands[(*options->operand_count)++] = text;
	return 0;
}

/* --help, --version: 1 when the word was one of them. */
static int word_answer(const struct options *options, const char *word)
{
	if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
		options_help(options);
		return 1;
	}
	if (strcmp(word, "--version") != 0)
		return 0;
	printf("%s %s%s\n", options->program, WINNOW_VERSION,
	       options->built_with != NULL ? options->built_with() : "");
	return 1;
}

/* The word at *at, and its value if that is a word of its own. */
static int word_read(struct reading *reading, int argc, char **argv, int *at)
{
	const struct options *options = reading->options;
	const char *word = argv[*at], *value = NULL;
	const struct option_alias *alias = find_alias(options, word, &value);
	int status = word_answer(options, word);

	if (status != 0)
		return status;
	if (strcmp(word, "--dump-config") == 0) {
		reading->dump = true;
		return 0;
	}
	if (alias != NULL)
		return alias_read(reading, alias, value, argc, argv, at);
	if (strncmp(word, "--", 2) != 0 || word[2] == '\0')
		return operand_read(reading, word);
	return argument_read(reading, argc, argv, at);
}

/* Does the other program's command begin with this word, or behind it? */
static bool is_command(const struct options *options, const char *word)
{
	return options->command_at != NULL && (word[0] != '-' || strcmp(word, "--") == 0);
}

/* 1: something was asked for and printed. */
static int arguments_read(struct reading *reading, int argc, char **argv)
{
	const struct options *options = reading->options;
	int status = 0, i = 1;

	if (options->operand_count != NULL)
		*options->operand_count = 0;
	for (; i < argc && status == 0 && !is_command(options, argv[i]); i++)
		status = word_read(reading, argc, argv, &i);
	if (options->command_at != NULL)
		*options->command_at = i < argc && strcmp(argv[i], "--") == 0 ? i + 1 : i;
	return status;
}

/* As if it had not been given: `other` has, by a stronger source. */
static void set_aside(struct reading *reading, const struct option *option,
                      const struct option *other)
{
	struct origin *origin = origin_of(reading, option);

	origin->stays = false;
	origin_free(origin);
	*(const char **)option->out = NULL;
	*origin = (struct origin){.source = SOURCE_PRESET};
	snprintf(origin->where, sizeof(origin->where), "not used: %s overrides it", other->name);
}

/* A key and a file of keys are two ways to say one thing, so the stronger source's overrides the other. */
static int keys_settle(struct reading *reading)
{
	const struct option *file = option_find(reading->options->list, "key-file");
	const struct option *key = option_find(reading->options->list, "key");
	const struct origin *of_file, *of_key;

	if (file == NULL || key == NULL)
		return 0;
	of_file = origin_of(reading, file);
	of_key = origin_of(reading, key);
	if (of_file->text == NULL || of_key->text == NULL)
		return 0;
	if (of_file->source == of_key->source)
		return why_set(&reading->why, -EINVAL,
		               "key-file (%s) contradicts key (%s): give one of them",
		               of_file->where, of_key->where);
	if (of_file->source > of_key->source)
		set_aside(reading, key, file);
	else
		set_aside(reading, file, key);
	return 0;
}

static int sources_read(struct reading *reading, int argc, char **argv)
{
	const struct options *options = reading->options;
	const struct option *file;
	int status;

	options_preset(options->list);
	for (const struct option *o = options->list; o->name != NULL; o++) {
		assert(o - options->list < OPTIONS_MAX);
		reading->origins[o - options->list] = (struct origin){
			.text = o->preset, .where = "not set", .source = SOURCE_PRESET};
		if (o->preset != NULL)
			strcpy(reading->origins[o - options->list].where, "default");
	}
	status = arguments_read(reading, argc, argv);
	if (status == 0)
		status = env_read(reading);
	if (status == 0)
		env_warn(options);
	file = options->file_option != NULL ? option_find(options->list, options->file_option)
	                                    : NULL;
	if (status == 0 && file != NULL && *(const char **)file->out != NULL)
		status = file_read(reading, *(const char **)file->out);
	return status == 0 ? keys_settle(reading) : status;
}

static void origins_free(struct reading *reading)
{
	for (uint32_t i = 0; i < OPTIONS_MAX; i++)
		origin_free(&reading->origins[i]);
}

int options_read(const struct options *options, int argc, char **argv)
{
	struct reading reading = {.options = options};
	int status = sources_read(&reading, argc, argv);

	if (status < 0) {
		fprintf(stderr, "%s: %s\n", options->program, reading.why.text);
		status = 2;
	}
	if (status == 0 && reading.dump) {
		options_dump(options, reading.origins);
		status = 1;
	}
	if (status == 1 && (fflush(stdout) != 0 || ferror(stdout))) {
		fprintf(stderr, "%s: cannot write: %s\n", options->program, strerror(errno));
		status = 2;
	}
	origins_free(&reading);
	return status;
}

/* ---- for a library, which has no command line ---- */

int options_file(const struct options *options, const char *path, struct why *why)
{
	struct reading reading = {.options = options};
	int err = file_read(&reading, path);

	if (err != 0)
		*why = reading.why;
	origins_free(&reading);
	return err;
}

int option_check(const struct option *option, struct why *why)
{
	if (option_is_wrong(option) && option_env(option, why) != 0)
		return -EINVAL; /* it has been wrong since the environment was read */
	return option_range(option, why);
}
