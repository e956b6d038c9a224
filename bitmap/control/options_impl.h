/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * options_impl.h - shared by option_value.c (one value), options.c (all sources), option_names.c
 * and options_print.c (help, dump); private to them
 */
#ifndef BITMAP_CONTROL_OPTIONS_IMPL_H
#define BITMAP_CONTROL_OPTIONS_IMPL_H

#include "bitmap/control/options.h"

#define OPTION_NAME_BYTES 64
#define OPTION_BLANKS " \t\r\n\v\f"
#define OPTIONS_MAX 64
#define ORIGIN_BYTES 96

/* The weakest first. */
enum source { SOURCE_PRESET, SOURCE_FILE, SOURCE_ENVIRONMENT, SOURCE_ARGUMENT };

/* The origin of an option's value. `text` is what the user wrote, or NULL without a value. */
struct origin {
	enum source source;
	const char *text;
	char *copy; /* The memory of `text`, or NULL. */
	bool stays; /* `copy` is the option's value, and outlives the reading. */
	char where[ORIGIN_BYTES];
};

/* option_value.c */
bool option_is_text(const struct option *option);
bool option_is_flag(const struct option *option);
bool option_is_argument(const struct option *option); /* allowed on the command line only */

/*
 * option_set - returns 0, or -EINVAL or -ERANGE with `why`. `named` is the option as the user
 * called it; "NAME-ms" and "WINNOW_NAME_MS" are plain numbers. A wrong value sets all bits of *out.
 */
int option_set(const struct option *option, const char *named, const char *text, struct why *why);

/* Check *out, for 32-bit kinds and texts: did option_set() leave it wrong, and is it in range? */
bool option_is_wrong(const struct option *option);
int option_range(const struct option *option, struct why *why);

/* Returns the beginning of the text without the blanks around it, and sets its length. */
const char *option_bare(const char *text, size_t *length);

/* options_print.c. Help shows all groups of options, or those that are not rare. */
void options_help(const struct options *options, bool all);
void options_dump(const struct options *options, const struct origin origins[]);

#endif /* BITMAP_CONTROL_OPTIONS_IMPL_H */
