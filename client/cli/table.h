/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * table.h - text in aligned columns, for people
 *
 * Columns stand in order of importance: if there is no room for all, the last are left out, and a
 * '>' at the end of the head says so. Nothing here knows what it shows; whatever is in a cell, it is
 * shown as plain ASCII.
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

/* Room for the text of one cell, as long as the block lasts that it stands in. */
#define CELL ((char[TABLE_CELL_BYTES]){0})

struct table {
	uint32_t column_count, row_count, row_room;
	char titles[TABLE_COLUMNS_MAX][TABLE_TITLE_BYTES];
	bool left[TABLE_COLUMNS_MAX]; /* aligned; else right */
	uint32_t widths[TABLE_COLUMNS_MAX];
	char (*cells)[TABLE_CELL_BYTES]; /* [row_room * TABLE_COLUMNS_MAX] */
};

/* More columns, before the first row, with a tab between two titles; "<TITLE" is aligned left. */
void table_columns(struct table *table, const char *titles);

/* A row: its cells, with a tab between two. */
void table_row(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* table_print - with a line of titles above. */
void table_print(const struct table *table, FILE *out);

void table_clear(struct table *table); /* rows and their memory */

/* "12.3M": three digits and a power of 1000. */
char *text_si(double value, char text[16]);

/* "3.2s", "4m05s", "2h07m", "3d04h": an age or a time. */
char *text_age(double seconds, char text[16]);

/* Copies text of others: printable ASCII, '?' for anything else, cut to the room. */
void text_safe(char *to, size_t room, const char *from);

#endif /* CLIENT_CLI_TABLE_H */
