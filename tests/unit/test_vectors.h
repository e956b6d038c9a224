/* SPDX-License-Identifier: BSD-3-Clause */
/* test_vectors.h - reads docs/vectors/: a paragraph is "KIND NAME" and lines of "KEY VALUE" */
#ifndef TESTS_UNIT_TEST_VECTORS_H
#define TESTS_UNIT_TEST_VECTORS_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/unit.h"

#define VECTORS "docs/vectors/"
#define LINES_MAX 160
#define VALUE_BYTES 1024

struct line {
	char key[24];
	char value[VALUE_BYTES];
};

struct paragraph {
	char kind[24], name[64];
	uint32_t count;
	struct line lines[LINES_MAX];
};

/* False at the end of the file. */
static inline bool paragraph_read(FILE *file, struct paragraph *p)
{
	char text[VALUE_BYTES + 32];

	assert_non_null(file); /* run it from the root of the repository */
	p->kind[0] = '\0';
	p->count = 0;
	while (fgets(text, sizeof(text), file) != NULL) {
		struct line *line = &p->lines[p->count];

		if (text[0] == '#')
			continue;
		if (text[0] == '\n' && p->kind[0] != '\0')
			break;
		if (text[0] == '\n')
			continue;
		assert_non_null(strchr(text, '\n'));
		if (p->kind[0] == '\0') {
			assert_int_equal(sscanf(text, "%23s %63s", p->kind, p->name), 2);
			continue;
		}
		assert_true(p->count < LINES_MAX);
		assert_int_equal(sscanf(text, "%23s %1023[^\n]", line->key, line->value), 2);
		p->count++;
	}
	if (p->kind[0] != '\0')
		print_message("%s %s\n", p->kind, p->name);
	return p->kind[0] != '\0';
}

/* Takes each paragraph of a file. Returns how many there are. */
static inline uint32_t paragraphs_each(const char *name, void (*take)(struct paragraph *))
{
	static struct paragraph p;
	FILE *file = fopen(name, "r");
	uint32_t count = 0;

	for (; paragraph_read(file, &p); count++)
		take(&p);
	fclose(file);
	return count;
}

static inline const char *text_of(const struct paragraph *p, const char *key)
{
	for (uint32_t i = 0; i < p->count; i++)
		if (strcmp(p->lines[i].key, key) == 0)
			return p->lines[i].value;
	fail_msg("%s %s has no %s", p->kind, p->name, key);
	return NULL;
}

static inline uint64_t number_of(const struct paragraph *p, const char *key)
{
	return strtoull(text_of(p, key), NULL, 0);
}

static inline uint32_t hex_read(const char *hex, uint8_t *out)
{
	uint32_t count = 0;

	for (unsigned byte; sscanf(hex + 2 * count, "%2x", &byte) == 1; count++)
		out[count] = (uint8_t)byte;
	return count;
}

/* The bytes of all lines of this key, which are joined. */
static inline uint32_t bytes_of(const struct paragraph *p, const char *key, uint8_t *out)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < p->count; i++)
		if (strcmp(p->lines[i].key, key) == 0)
			count += hex_read(p->lines[i].value, out + count);
	return count;
}

#endif /* TESTS_UNIT_TEST_VECTORS_H */
