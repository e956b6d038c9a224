/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * options.h - reads options from the command line, the environment and a file
 *
 * A program lists its options in one table, from which parsing, help and error texts are made. The
 * command line has precedence over the environment (WINNOW_ and the name in capitals; an empty
 * variable is not set), the environment over the file (INI, "name = value", each name once), and
 * the file over the default. A source may give "key" or "key-file", not both; the one from the
 * stronger source empties the other. Except on the command line, blanks and line ends around a
 * value are cut off, because variables that come from files often end with one; job_keys.h has the
 * rules for keys. Every error is one line that says what is wrong, why, and what to do.
 *
 * Every program also takes --help, --help-all, --version, and --dump-config, which prints all
 * options with their values and the origin of each, in the form that --config reads.
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
	OPTION_COUNT32, /* uint32_t: the same */
	OPTION_SIZE,    /* uint64_t: bytes; K, M, G (or k, m, g) are powers of 1024 */
	OPTION_SIZE32,  /* uint32_t: the same */
	OPTION_RATE,    /* uint64_t: bit/s; K, M, G are powers of 1000 */
	OPTION_TIME,    /* uint64_t: microseconds; s (the default), ms, us, m */
	OPTION_MS,      /* uint32_t: milliseconds, written like TIME; "NAME-ms" is a plain number */
	OPTION_REAL,    /* double */
	OPTION_FLAG,    /* bool: the value may be left out; "no" and 0 switch it off */
	OPTION_INT_FLAG, /* int: the same */
	OPTION_DSCP,     /* uint32_t: a codepoint of RFC 2474, by its name or number */
	OPTION_CHOICE,   /* an enum: the place of the text in `value`, counted from `min` */
};

struct option {
	const char *name; /* "listen" for --listen and WINNOW_LISTEN */
	/*
	 * How help names the value, such as "ADDR:PORT". For a choice, all values: "f32,float|f16";
	 * help shows the first name of each. "[TIME]" may be left out on a command line, and is
	 * then 1.
	 */
	const char *value;
	enum option_kind kind;
	void *out;
	const char *preset; /* the default as the user would write it, or NULL */
	/*
	 * Another variable that also gives the option, such as "RANK", or NULL. "=WINNOW_OTHER" is
	 * the only one, because WINNOW_NAME means something else. OPTION_ARGUMENT allows the option
	 * on the command line only.
	 */
	const char *env_alias;
	/* Limits of a number in the unit of *out; a max of 0 is none. A preset of 0 is allowed. */
	double min, max;
	const char *help;
};

/* Another way to write an option that takes a value: "-b" for --minbytes, "--np" for --workers. */
struct option_alias {
	const char *said; /* "-np" stands before its beginning "-n" in the list */
	const char *name;
};

/* A heading in the help, for the options from `first` to the next heading. */
struct option_group {
	const char *heading; /* One word: docker/package/man.awk reads it. */
	const char *first;
	bool rare; /* only --help-all shows it: few need these options, and --help is one screen */
};

struct options {
	const char *program; /* such as "winnow bench"; NULL for a library */
	const char *usage;   /* follows the program in the first line of help */
	const char *about;   /* a paragraph for help */
	const char *examples;
	const struct option *list;          /* ends with a NULL name */
	const struct option_alias *aliases; /* ends with a NULL `said`; may be NULL */
	const struct option_group *groups;  /* in the list's order; ends with a NULL heading */
	const char *section;                /* of the INI file */
	const char *file_option;            /* the option that names the file, or NULL */
	const char *(*built_with)(void);    /* adds to --version, or NULL */
	bool joins; /* the program joins a job, so the library reports unknown variables */

	/* Arguments that are not options; at most operand_max, and none if that is 0. */
	const char **operands;
	uint32_t *operand_count;
	uint32_t operand_max;

	/*
	 * For a program that starts another one, or NULL: the place in argv of that one's name,
	 * which is the first word that is no option, or follows "--". argc if there is none.
	 */
	int *command_at;
};

/*
 * options_read - returns 0 when all options are set, 1 when help, version or a dump was asked for
 * and has been printed, and 2 for wrong usage, with a line on stderr. Texts point into argv, the
 * environment, or memory that is kept for the life of the process; so do those of option_env().
 */
int options_read(const struct options *options, int argc, char **argv);

/* Whether the word asks for help: --help, -h or --help-all. */
bool option_is_help(const char *word);

/*
 * For a library, which has no command line. The last two return 0, or -errno and `why`. A wrong
 * number sets all bits of *out, so that option_check() can report it later.
 */
void options_preset(const struct option list[]);
int options_file(const struct options *options, const char *path, struct why *why);
int option_env(const struct option *option, struct why *why);

/*
 * option_stranger - finds the next variable from *at on (a place in `environ`) that no program of
 * ours reads, but that resembles one. Returns true with a line in `why`. Once it has returned false
 * it always does, so that a process reports each variable once.
 */
bool option_stranger(char *const **at, struct why *why);

/*
 * option_check - returns 0 if *out is now in range. The kind must be a 32-bit number or a text; a
 * text always is in range.
 */
int option_check(const struct option *option, struct why *why);

/*
 * Tell whether a text is one of the ways to say no, or yes, for an option that usually names
 * something.
 */
bool option_is_off(const char *text);
bool option_is_on(const char *text);

/*
 * option_item - copies the first item of "a, b" to `item`, without blanks and cut to the room.
 * Returns the text after its comma, or NULL if it is the last. An empty list has one empty item.
 */
const char *option_item(const char *list, char *item, size_t room);

/* Writes a choice's `value` as "f32, f16 or bf16", with ", " between and " or " before the last. */
void option_choices(const char *choices, const char *between, const char *last, char *text,
                    size_t room);

/* Returns `other` if it resembles `name` more than `best` (may be NULL) does; or else `best`. */
const char *option_nearer(const char *name, const char *best, const char *other);

/* Reads a size. Returns 0 or -EINVAL. */
int option_size(const char *text, uint64_t *out);

#endif /* BITMAP_CONTROL_OPTIONS_H */
