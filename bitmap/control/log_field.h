/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * log_field.h - what an event in the log consists of, for those who report one and for log.c, which writes it
 *
 *     log_event("warn", "refused", LOG_FIELDS(LOG_WORD("peer", address)), "world is %u", world);
 *
 * Values are written as they are: whatever they contain, log.c quotes and escapes them.
 */
#ifndef BITMAP_CONTROL_LOG_FIELD_H
#define BITMAP_CONTROL_LOG_FIELD_H

#include <stdint.h>

enum log_kind {
	LOG_KIND_WORD, /* logfmt has it in quotes only where it must */
	LOG_KIND_TEXT, /* always in quotes */
	LOG_KIND_NUMBER,
};

struct log_field {
	const char *name; /* NULL: the end of a list */
	enum log_kind kind;
	const char *text; /* NULL: the field is left out */
	uint64_t number;
};

#define LOG_FIELD(name, kind, text, number) ((struct log_field){name, kind, text, number})
#define LOG_WORD(name, word) LOG_FIELD(name, LOG_KIND_WORD, word, 0)
#define LOG_TEXT(name, text) LOG_FIELD(name, LOG_KIND_TEXT, text, 0)
#define LOG_NUMBER(name, number) LOG_FIELD(name, LOG_KIND_NUMBER, NULL, number)
#define LOG_FIELDS(...) ((const struct log_field[]){__VA_ARGS__, {0}})

#endif /* BITMAP_CONTROL_LOG_FIELD_H */
