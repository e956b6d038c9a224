// SPDX-License-Identifier: BSD-3-Clause
/* options.c - names and sources of options: file, environment, command line; see options.h */

#include "bitmap/control/options_impl.h"
#include "bitmap/control/plain_file.h"
#include "bitmap/control/secrets.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAMED_BYTES (2 + OPTION_NAME_BYTES) /* "--name" */
#define AT_BYTES 300                        /* "FILE, line 3: " */

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

/*
 * Finds the option of a word: "--name", "--name=VALUE" or an alias, "-n", "-nVALUE", "--np" or
 * "--np=VALUE". NULL if there is none. Sets `named` to the word's name for it, *value to the word's
 * value or NULL.
 */
static const struct option *option_named(const struct options *options, const char *word,
                                         char named[NAMED_BYTES], const char **value)
{
	size_t length;

	for (const struct option_alias *a = options->aliases; a != NULL && a->said != NULL; a++) {
		const char *rest = word + strlen(a->said);
		bool letter = strlen(a->said) == 2;

		if (strncmp(word, a->said, strlen(a->said)) != 0 ||
		    (*rest != '\0' && !letter && *rest != '='))
			continue;
		*value = *rest == '\0' ? NULL : rest + !letter;
		snprintf(named, NAMED_BYTES, "%s", a->said);
		return option_find(options->list, a->name);
	}
	length = strcspn(word, "=");
	*value = word[length] == '=' ? word + length + 1 : NULL;
	if (length >= NAMED_BYTES)
		length = NAMED_BYTES - 1;
	memcpy(named, word, length);
	named[length] = '\0';
	return strncmp(word, "--", 2) == 0 ? option_find(options->list, named + 2) : NULL;
}

/* `at` says where the name stands, and `prefix` how it is written there. */
static int name_refuse(const struct options *options, const char *at, const char *prefix,
                       const char *name, struct why *why)
{
	const char *hint = NULL;

	for (const struct option *o = options->list; o->name != NULL; o++)
		hint = option_nearer(name, hint, o->name);
	if (hint != NULL)
		return why_set(why, -ENOENT, "%sno option %s%s; did you mean %s%s?", at, prefix,
		               name, prefix, hint);
	return why_set(why, -ENOENT, "%sno option %s%s; see %s%s", at, prefix, name,
	               options->program != NULL ? options->program : "winnow.h",
	               options->program != NULL ? " --help" : "");
}

/* Several programs may share a file. A section that none of them has would be ignored silently. */
static int section_check(const struct options *options, const char *at, const char *section,
                         struct why *why)
{
	static const char *const all[] = {"winnow", "winnowd", "bench",  "colocate",
	                                  "doctor", "run",     "status", "tune"};
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
	return why_set(why, -ENOENT, "%sno section [%s]; this program reads [%s]", at, section,
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

/* Wipes the copy, because it may hold a key. */
static void origin_free(struct origin *origin)
{
	if (origin->copy != NULL && !origin->stays) {
		explicit_bzero(origin->copy, strlen(origin->copy));
		free(origin->copy);
	}
}

/* job_keys.h trims keys itself, because a trimmed copy would be one more to wipe. */
static bool is_surrounded(const struct option *option, const char *value)
{
	size_t length = strlen(value);

	option_bare(value, &length);
	return option->kind != OPTION_SECRET && length < strlen(value);
}

static char *text_trimmed(const char *value)
{
	size_t length = strlen(value);
	const char *bare = option_bare(value, &length);

	return strndup(bare, length);
}

/* "key" and "key-file" exclude each other. Returns the other one, or NULL. */
static const struct option *option_rival(const struct options *options, const struct option *option)
{
	bool key = strcmp(option->name, "key") == 0;

	if (!key && strcmp(option->name, "key-file") != 0)
		return NULL;
	return option_find(options->list, key ? "key-file" : "key");
}

/*
 * Takes a value from a source, unless a stronger source, which is read earlier, has given one.
 * `named` is the option's name there, for error texts; `where` is for the dump.
 */
static int value_take(struct reading *reading, const struct option *option, enum source source,
                      const char *named, const char *where, const char *value)
{
	const struct option *rival = option_rival(reading->options, option);
	const struct origin *of_rival = rival != NULL ? origin_of(reading, rival) : NULL;
	struct origin *origin = origin_of(reading, option);
	bool trims = source == SOURCE_ENVIRONMENT && is_surrounded(option, value);
	char *copy = NULL;
	int err;

	if (source < origin->source)
		return 0;
	if (rival != NULL && source < of_rival->source) {
		*(const char **)option->out = NULL; /* the library may also have read it */
		snprintf(origin->where, sizeof(origin->where), "not used: %s overrides it",
		         rival->name);
		return 0;
	}
	if (rival != NULL && source == of_rival->source)
		return why_set(&reading->why, -EINVAL,
		               "%s (%s) contradicts %s (%s): give one of them", option->name, where,
		               rival->name, of_rival->where);
	if (source == SOURCE_FILE || trims) { /* the file's memory does not last */
		copy = trims ? text_trimmed(value) : strdup(value);
		if (copy == NULL)
			return why_set(&reading->why, -ENOMEM, "out of memory");
		value = copy;
	}
	err = option_set(option, named, value, &reading->why);
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
		int err = o->preset != NULL ? option_set(o, o->name, o->preset, &why) : 0;

		assert(err == 0);
	}
}

/* ---- a file ---- */

struct file {
	struct reading *reading;
	const char *path;
	uint32_t line;           /* The number of the line that is read. */
	bool ours;               /* Its section is this program's. */
	bool given[OPTIONS_MAX]; /* By place in the list; true once a line has set it. */
};

static int pair_take(struct file *file, const char *at, const char *name, const char *value)
{
	struct reading *reading = file->reading;
	const struct option *option = option_find(reading->options->list, name);
	char named[OPTION_NAME_BYTES + AT_BYTES];
	bool *given;

	if (!file->ours)
		return 0;
	if (option == NULL)
		return name_refuse(reading->options, at, "", name, &reading->why);
	if (option_is_argument(option))
		return why_set(&reading->why, -EINVAL, "%s%s is allowed on the command line only",
		               at, name);
	given = &file->given[option - reading->options->list];
	if (*given)
		return why_set(&reading->why, -EINVAL, "%sthe file sets %s twice", at,
		               option->name);
	*given = true;
	snprintf(named, sizeof(named), "%s%s", at, name);
	return value_take(reading, option, SOURCE_FILE, named, file->path, value);
}

/* Cuts off the blanks around the text. */
static char *text_trim(char *text)
{
	size_t length = strlen(text);
	const char *bare = option_bare(text, &length);

	text += bare - text;
	text[length] = '\0';
	return text;
}

/* Text after a section's name would be ignored silently, unless it is a comment. */
static bool is_over(const char *rest)
{
	rest += strspn(rest, OPTION_BLANKS);
	return *rest == '\0' || *rest == '#';
}

/*
 * Takes "[section]", "name = value" or "name: value". ";" or "#" at the beginning of a line, and
 * ";" after a blank, begin a comment.
 */
static int line_take(struct file *file, char *line)
{
	const struct options *options = file->reading->options;
	char at[AT_BYTES], *end;

	line = text_trim(line);
	if (*line == '\0' || *line == ';' || *line == '#')
		return 0;
	for (end = strchr(line, ';'); end != NULL && strchr(OPTION_BLANKS, end[-1]) == NULL;)
		end = strchr(end + 1, ';');
	if (end != NULL)
		*end = '\0';
	snprintf(at, sizeof(at), "%.250s, line %u: ", file->path, file->line);
	end = strpbrk(line, *line == '[' ? "]" : "=:");
	if (end == NULL || end == line || (*line == '[' && !is_over(end + 1)))
		return why_set(&file->reading->why, -EINVAL,
		               "%swant \"name = value\" or \"[section]\"", at);
	*end = '\0';
	if (*line != '[')
		return pair_take(file, at, text_trim(line), text_trim(end + 1));
	file->ours = strcmp(line + 1, options->section) == 0;
	return section_check(options, at, line + 1, &file->reading->why);
}

static int file_read(struct reading *reading, const char *path)
{
	/* Lines before the first section are for programs, and not for the library. */
	struct file file = {
		.reading = reading, .path = path, .ours = reading->options->program != NULL};
	struct plain_file plain;
	char *line;
	int err = plain_file_read("", path, &plain, &reading->why);

	if (err != 0)
		return err;
	while (err == 0 && (line = plain_file_line(&plain)) != NULL) {
		file.line++;
		err = line_take(&file, line);
	}
	plain_file_free(&plain);
	secrets_clear(); /* a line may have been a key */
	return err;
}

/* ---- the environment ---- */

/*
 * Returns NULL if the variable does not count. An empty one counts only for a flag, and switches it
 * off.
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

/* Returns the option's value in the environment and the variable's name, or NULL. */
static const char *env_value(const struct option *option, char name[OPTION_NAME_BYTES])
{
	const char *alias = option->env_alias, *value = NULL;
	bool alone = alias != NULL && alias[0] == '=';

	if (option_is_argument(option))
		return NULL;
	if (!alone) {
		size_t used = env_name(option->name, name);

		value = env_named(option, name);
		if (value == NULL && option->kind == OPTION_MS) {
			strcpy(name + used, "_MS");
			value = env_named(option, name);
		}
	}
	if (value != NULL || alias == NULL)
		return value;
	strcpy(name, alias + alone);
	return env_named(option, name);
}

static int text_compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* The library's settings point to the text, so each text is kept once, however often it is read. */
static const char *text_kept(const char *value)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static void *texts;
	char *text = text_trimmed(value), **found;

	if (text == NULL)
		return NULL;
	pthread_mutex_lock(&lock);
	found = tsearch(text, &texts, text_compare);
	pthread_mutex_unlock(&lock);
	if (found == NULL || *found != text)
		free(text);
	return found != NULL ? *found : NULL;
}

int option_env(const struct option *option, struct why *why)
{
	char name[OPTION_NAME_BYTES];
	const char *value = env_value(option, name);

	if (value != NULL && is_surrounded(option, value)) {
		value = text_kept(value);
		if (value == NULL)
			return why_set(why, -ENOMEM, "out of memory");
	}
	return value != NULL ? option_set(option, name, value, why) : 0;
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
	char name[OPTION_NAME_BYTES];
	int err = 0;

	for (const struct option *o = reading->options->list; o->name != NULL && err == 0; o++) {
		const char *value = env_value(o, name);

		if (value != NULL)
			err = value_take(reading, o, SOURCE_ENVIRONMENT, name, name, value);
	}
	return err;
}

/* ---- the command line ---- */

/* Tells whether the option's optional value is missing on the command line. */
static bool value_left_out(const struct option *option, int argc, char **argv, int at)
{
	struct why why;

	return option->value[0] == '[' &&
	       (at + 1 == argc || option_set(option, option->name, argv[at + 1], &why) == -EINVAL);
}

static int operand_read(struct reading *reading, const char *text)
{
	const struct options *options = reading->options;

	if (text[0] == '-' || options->operand_max == 0)
		return why_set(&reading->why, -EINVAL, "'%s' is not an option; see %s --help", text,
		               options->program);
	if (*options->operand_count == options->operand_max)
		return why_set(&reading->why, -EINVAL,
		               "at most %u arguments are allowed; see %s --help",
		               options->operand_max, options->program);
	options->operands[(*options->operand_count)++] = text;
	return 0;
}

/* Answers --help and --version. Returns 1 if the word was one of them. */
static int word_answer(const struct options *options, const char *word)
{
	if (option_is_help(word)) {
		options_help(options, strcmp(word, "--help-all") == 0);
		return 1;
	}
	if (strcmp(word, "--version") != 0)
		return 0;
	printf("%s %s%s\n", options->program, WINNOW_VERSION,
	       options->built_with != NULL ? options->built_with() : "");
	return 1;
}

/* Reads the word at *at, and the next one if that is its value. */
static int word_read(struct reading *reading, int argc, char **argv, int *at)
{
	const struct options *options = reading->options;
	const char *word = argv[*at], *value;
	const struct option *option;
	char named[NAMED_BYTES];
	int status = word_answer(options, word);

	if (status != 0)
		return status;
	if (strcmp(word, "--dump-config") == 0) {
		reading->dump = true;
		return 0;
	}
	option = option_named(options, word, named, &value);
	if (option == NULL && strncmp(word, "--", 2) == 0 && word[2] != '\0')
		return name_refuse(options, "", "--", named + 2, &reading->why);
	if (option == NULL)
		return operand_read(reading, word);
	if (value == NULL && (option_is_flag(option) || value_left_out(option, argc, argv, *at)))
		value = "1";
	else if (value == NULL && *at + 1 < argc)
		value = argv[++*at];
	if (value == NULL)
		return why_set(&reading->why, -EINVAL, "%s wants a value: %s", named,
		               option->value);
	return value_take(reading, option, SOURCE_ARGUMENT, named, "command line", value);
}

/* Tells whether the other program's command begins with this word or follows it. */
static bool is_command(const struct options *options, const char *word)
{
	return options->command_at != NULL && (word[0] != '-' || strcmp(word, "--") == 0);
}

/* Returns 1 if something was asked for and printed. */
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
	return status;
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
		return -EINVAL; /* the environment gave it a wrong value */
	return option_range(option, why);
}
