/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * table.h - text in aligned columns, for people
 *
 * It knows nothing of what it shows. Every cell is shown as printable ASCII.
 */
#ifndef CLIENT_CLI_TABLE_H
#define CLIENT_CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TABLE_COLUMNS_MAX 20
#define TABLE_CELL_BYTES 80
#define TABLE_TITLE_BYTES 16

/* Room for the text of one cell. It exists until the end of the enclosing block. */
#define CELL ((char[TABLE_CELL_BYTES]){0})

struct table {
	uint32_t column_count, row_count, row_room;
	char titles[TABLE_COLUMNS_MAX][TABLE_TITLE_BYTES];
	bool left[TABLE_COLUMNS_MAX]; /* The column is aligned left; otherwise right. */
	uint32_t widths[TABLE_COLUMNS_MAX];
	char (*cells)[TABLE_CELL_BYTES]; /* [row_room * TABLE_COLUMNS_MAX] */
};

/* Adds columns, before the first row. Tabs separate titles; a column "<TITLE" is aligned left. */
void table_columns(struct table *table, const char *titles);

/* Adds a row, whose cells are separated by tabs. */
void table_row(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints a line of titles and all rows. */
void table_print(const struct table *table, FILE *out);

void table_clear(struct table *table); /* Frees the rows. */

/* Writes three digits and a power of 1000, such as "12.3M". */
char *text_si(double value, char text[16]);

/* Writes an age, such as "3.2s", "4m05s", "2h07m" or "3d04h". */
char *text_age(double seconds, char text[16]);

/* Copies untrusted text, cut to the room, with '?' for everything but printable ASCII. */
void text_safe(char *to, size_t room, const char *from);

#endif /* CLIENT_CLI_TABLE_H */
