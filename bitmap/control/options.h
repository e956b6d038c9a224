/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * options.h - options from the command line, the environment and a file, by one table
 *
 * A program lists its options once; parsing, help and error texts all come from the list.
 * Order of precedence: command line, environment (WINNOW_ and the name in capitals; an empty one
 * is not set), file (INI, "name = value", each name once), default. Of "key" and "key-file" one source
 * gives one, and a stronger source's empties the other. Blanks and line ends around a value do not belong
 * to it but on a command line, as a variable that was made of a file often ends with one; of keys see
 * job_keys.h. Every error is one line: what, why, what to do.
 *
 * Every program also takes --help, --version, and --dump-config, which prints the options with
 * their values and where each value is from, as a file that --config takes.
 */
#ifndef BITMAP_CONTROL_OPTIONS_H
#define BITMAP_CONTROL_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bitmap/why.h"

#define METRICS_DEFAULT "127.0.0.1:9555" /* winnowd's; where winnow status looks */

#define OPTION_ARGUMENT "="

enum option_kind {
	OPTION_TEXT,    /* const char *; NULL when not given */
	OPTION_SECRET,  /* const char *; NULL when not given, and never shown */
	OPTION_COUNT,   /* uint64_t: a plain number */
	OPTION_COUNT32, /* uint32_t */
	OPTION_SIZE,    /* uint64_t: bytes; K, M, G (or k, m, g) are powers of 1024 */
	OPTION_SIZE32,  /* uint32_t */
	OPTION_RATE,    /* uint64_t: bit/s; K, M, G are powers of 1000 */
	OPTION_TIME,    /* uint64_t: microseconds; s (the default), ms, us, m */
	OPTION_MS,      /* uint32_t: milliseconds, written like TIME; as "NAME-ms" a plain number */
	OPTION_REAL,    /* double */
	OPTION_FLAG,    /* bool: needs no value; "no" and 0 switch it off */
	OPTION_INT_FLAG, /* int: the same */
	OPTION_DSCP,     /* uint32_t: a codepoint of RFC 2474, by its name or number */
	OPTION_CHOICE,   /* an enum: the place of the text in `value`, the first being `min` */
};

struct option {
	const char *name; /* "listen" for --listen and WINNOW_LISTEN */
	/*
	 * What help calls the value: "ADDR:PORT". For a choice all of them: "f32,float|f16", of
	 * which help shows the first names. "[TIME]": on a command line it may be left out, and is then 1.
	 */
	const char *value;
	enum option_kind kind;
	void *out;
	const char *preset; /* as the user would write it; NULL: none */
	/*
	 * Another variable that is looked at, "RANK"; or NULL. "=WINNOW_OTHER": that one alone,
	 * since WINNOW_NAME is for something else. OPTION_ARGUMENT: none, and no file; the command
	 * line alone says it.
	 */
	const char *env_alias;
	/* Of numbers, in the unit of *out; max 0: no limit. A preset of 0 is allowed beside them. */
	double min, max;
	const char *help;
};

/* Another way to say an option that takes a value: "-b" for --minbytes, or "--np" for --workers. */
struct option_alias {
	const char
		*said; /* a longer one stands before one that it begins with: "-np" before "-n" */
	const char *name;
};

/* A heading in the help. It stands before the option `first` and covers the options up to the next heading. */
struct option_group {
	const char *heading; /* One word: docker/package/man.awk reads it. */
	const char *first;
};

struct options {
	const char *program; /* "winnow bench"; NULL: a library */
	const char *usage;   /* what follows the program in the first line of help */
	const char *about;   /* a paragraph for help */
	const char *examples;
	const struct option *list;          /* ends with a NULL name */
	const struct option_alias *aliases; /* ends with a NULL `said`; NULL: none */
	const struct option_group
		*groups;         /* ends with a NULL heading, in the list's order; NULL: none */
	const char *section;     /* of the INI file */
	const char *file_option; /* the option that names the file; NULL: none */
	const char *(*built_with)(void); /* what --version says besides; NULL: nothing */
	bool joins; /* it joins a job, and the library says which variables mean nothing */

	/* Arguments that are no options: up to operand_max of them; 0: none are taken. */
	const char **operands;
	uint32_t *operand_count;
	uint32_t operand_max;

	/*
	 * For a program that starts another one: the place in argv of that one's name, which is the first word that
	 * is no option, or follows "--"; argc: there is none. NULL: it starts none.
	 */
	int *command_at;
};

/*
 * options_read - 0: all are set; 1: help, version or a dump was asked for and has been printed; 2:
 * wrong usage, with a line on stderr. Texts point into argv, the environment, or memory that is
 * kept for the life of the process, as those of option_env() do.
 */
int options_read(const struct options *options, int argc, char **argv);

void options_help(const struct options *options);

/*
 * For a library, which has no command line and returns errors: 0, or -errno and `why`. A wrong
 * number becomes all ones, so that option_check() can report it later.
 */
void options_preset(const struct option list[]);
int options_file(const struct options *options, const char *path, struct why *why);
int option_env(const struct option *option, struct why *why);

/*
 * option_stranger - the next variable from *at on, a place in `environ`, that nobody reads and that is nearly called like
 * one that somebody does: a line in `why`. False: there is no more, in this process: whoever asks later is told of none.
 */
bool option_stranger(char *const **at, struct why *why);

/*
 * option_check - is what *out holds now in range? The kind must be a 32-bit one or a text; a text
 * always is.
 */
int option_check(const struct option *option, struct why *why);

/*
 * Is it one of the ways to say no, or yes? For an option that can be switched off instead of naming
 * something, or on.
 */
bool option_is_off(const char *text);
bool option_is_on(const char *text);

/*
 * option_item - the first item of "a, b", without the blanks around it and cut to the room, and what
 * follows its comma; NULL: it is the last. A list has one at least, which may be empty.
 */
const char *option_item(const char *list, char *item, size_t room);

/* "f32, f16 or bf16" of a choice's `value`, with ", " between and " or " before the last. */
void option_choices(const char *choices, const char *between, const char *last, char *text,
                    size_t room);

/* `other`, if it is nearer to `name` than `best` (NULL: none) and near at all, or else `best`: for "did you mean". */
const char *option_nearer(const char *name, const char *best, const char *other);

/* A single size, for other parsers: 0 or -EINVAL. */
int option_size(const char *text, uint64_t *out);

#endif /* BITMAP_CONTROL_OPTIONS_H */
