/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * log_field.h - the fields of an event in the log, for the code that reports it and for log.c
 *
 *     log_event("warn", "refused", LOG_FIELDS(LOG_WORD("peer", address)), "world is %u", world);
 *
 * Callers pass values as they are; log.c quotes and escapes them.
 */
#ifndef BITMAP_CONTROL_LOG_FIELD_H
#define BITMAP_CONTROL_LOG_FIELD_H

#include <stdint.h>

enum log_kind {
	LOG_KIND_WORD, /* logfmt quotes it only where it must */
	LOG_KIND_TEXT, /* logfmt always quotes it */
	LOG_KIND_NUMBER,
};

struct log_field {
	const char *name; /* NULL ends a list */
	enum log_kind kind;
	const char *text; /* NULL leaves the field out */
	uint64_t number;
};

#define LOG_FIELD(name, kind, text, number) ((struct log_field){name, kind, text, number})
#define LOG_WORD(name, word) LOG_FIELD(name, LOG_KIND_WORD, word, 0)
#define LOG_TEXT(name, text) LOG_FIELD(name, LOG_KIND_TEXT, text, 0)
#define LOG_NUMBER(name, number) LOG_FIELD(name, LOG_KIND_NUMBER, NULL, number)
#define LOG_FIELDS(...) ((const struct log_field[]){__VA_ARGS__, {0}})

#endif /* BITMAP_CONTROL_LOG_FIELD_H */
