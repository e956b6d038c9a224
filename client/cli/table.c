// SPDX-License-Identifier: BSD-3-Clause
/* table.c - see table.h */

#include "client/cli/table.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"

#define GAP "  "

void table_columns(struct table *table, const char *titles)
{
	assert(table->row_count == 0);
	for (size_t length; *titles != '\0'; titles += length + (titles[length] == '\t')) {
		uint32_t column = table->column_count++, left = *titles == '<';

		length = strcspn(titles, "\t");
		assert(column < TABLE_COLUMNS_MAX && length - left < TABLE_TITLE_BYTES);
		snprintf(table->titles[column], TABLE_TITLE_BYTES, "%.*s", (int)(length - left),
		         titles + left);
		table->left[column] = left;
		if (table->widths[column] < length - left)
			table->widths[column] = (uint32_t)length - left;
	}
}

void table_row(struct table *table, const char *format, ...)
{
	char text[TABLE_COLUMNS_MAX * TABLE_CELL_BYTES], *at = text;
	va_list args;

	if (table->row_count == table->row_room) {
		table->row_room = table->row_room * 2 + 16;
		table->cells = cli_memory_more(
			table->cells,
			(size_t)table->row_room * TABLE_COLUMNS_MAX * TABLE_CELL_BYTES, "a table");
	}
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	for (uint32_t column = 0; column < table->column_count; column++) {
		char *cell = table->cells[(size_t)table->row_count * TABLE_COLUMNS_MAX + column];
		char *end = at + strcspn(at, "\t"), *next = *end != '\0' ? end + 1 : end;

		*end = '\0';
		text_safe(cell, TABLE_CELL_BYTES, at);
		if (table->widths[column] < strlen(cell))
			table->widths[column] = (uint32_t)strlen(cell);
		at = next;
	}
	table->row_count++;
}

/* A last column that is aligned left gets no trailing spaces. */
static void print_cell(const struct table *table, uint32_t column, const char *text, FILE *out)
{
	bool last = column + 1 == table->column_count;
	int room = (int)table->widths[column];

	if (table->left[column])
		fprintf(out, "%-*s", last ? 0 : room, text);
	else
		fprintf(out, "%*s", room, text);
	fprintf(out, "%s", last ? "\n" : GAP);
}

void table_print(const struct table *table, FILE *out)
{
	for (uint32_t i = 0; i < table->column_count; i++)
		print_cell(table, i, table->titles[i], out);
	for (uint32_t row = 0; row < table->row_count; row++)
		for (uint32_t i = 0; i < table->column_count; i++)
			print_cell(table, i, table->cells[(size_t)row * TABLE_COLUMNS_MAX + i],
			           out);
}

void table_clear(struct table *table)
{
	free(table->cells);
	table->cells = NULL;
	table->row_count = table->row_room = 0;
}

char *text_si(double value, char text[16])
{
	static const char units[] = " KMGTPE";
	uint32_t power = 0;

	while (value >= 999.5 && power + 2 < sizeof(units)) {
		value /= 1000;
		power++;
	}
	if (!(value < 1e6))
		snprintf(text, 16, "?");
	else if (power == 0)
		snprintf(text, 16, "%.0f", value);
	else
		snprintf(text, 16, "%.*f%c",
		         value < 9.995   ? 2
		         : value < 99.95 ? 1
		                         : 0,
		         value, units[power]);
	return text;
}

char *text_age(double seconds, char text[16])
{
	uint64_t whole;

	if (!(seconds >= 0 && seconds < 1e9)) {
		snprintf(text, 16, "?");
		return text;
	}
	whole = (uint64_t)(seconds + 0.5);
	if (seconds < 0.0995)
		snprintf(text, 16, "%.0fms", seconds * 1e3);
	else if (seconds < 9.95)
		snprintf(text, 16, "%.1fs", seconds);
	else if (whole < 60)
		snprintf(text, 16, "%us", (unsigned)whole);
	else if (whole < 3600)
		snprintf(text, 16, "%um%02us", (unsigned)(whole / 60), (unsigned)(whole % 60));
	else if (whole < 86400)
		snprintf(text, 16, "%uh%02um", (unsigned)(whole / 3600),
		         (unsigned)(whole / 60 % 60));
	else
		snprintf(text, 16, "%ud%02uh", (unsigned)(whole / 86400),
		         (unsigned)(whole / 3600 % 24));
	return text;
}

void text_safe(char *to, size_t room, const char *from)
{
	size_t used = 0;

	for (; *from != '\0' && used + 1 < room; from++)
		to[used++] = *from >= ' ' && *from <= '~' ? *from : '?';
	to[used] = '\0';
}
