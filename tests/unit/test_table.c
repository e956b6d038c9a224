// SPDX-License-Identifier: BSD-3-Clause
/* test_table.c - columns, and numbers as people read them */

#include <stdlib.h>
#include <string.h>

#include "client/cli/table.h"
#include "tests/unit/unit.h"

/* What table_print() prints. */
static const char *printed(const struct table *table)
{
	static char text[4096];
	char *memory = NULL;
	size_t bytes;
	FILE *out = open_memstream(&memory, &bytes);

	assert_non_null(out);
	table_print(table, out);
	fclose(out);
	assert_true(bytes < sizeof(text));
	memcpy(text, memory, bytes + 1);
	free(memory);
	return text;
}

static void fill(struct table *table)
{
	table_columns(table, "<JOB\tN\t<LAST");
	table_row(table, "a\t%d\tx", 12345);
	table_row(table, "longer\t1\tyy");
}

TEST(columns)
{
	struct table table = {0};

	fill(&table);
	assert_string_equal(printed(&table), "JOB         N  LAST\n"
	                                     "a       12345  x\n"
	                                     "longer      1  yy\n");
	/* A row that is not complete, one with too many cells, and what a terminal would obey. */
	table_row(&table, "z");
	table_row(&table, "%s\t2\ty\tmore", "\033[2J");
	assert_string_equal(printed(&table), "JOB         N  LAST\n"
	                                     "a       12345  x\n"
	                                     "longer      1  yy\n"
	                                     "z              \n"
	                                     "?[2J        2  y\n");
	table_clear(&table);
	assert_int_equal(table.row_count, 0);
}

TEST(many_rows)
{
	struct table table = {0};

	table_columns(&table, "I");
	for (int i = 0; i < 1000; i++)
		table_row(&table, "%d", i);
	assert_int_equal(table.row_count, 1000);
	assert_string_equal(table.cells[(size_t)999 * TABLE_COLUMNS_MAX], "999");
	table_clear(&table);
}

TEST(numbers)
{
	static const struct {
		double value;
		const char *si;
	} numbers[] = {{0, "0"},         {1, "1"},          {999, "999"},     {999.6, "1.00K"},
	               {1000, "1.00K"},  {9994, "9.99K"},   {9996, "10.0K"},  {99960, "100K"},
	               {123456, "123K"}, {999600, "1.00M"}, {2.5e9, "2.50G"}, {1e308, "?"}};
	static const struct {
		double seconds;
		const char *age;
	} ages[] = {{0, "0ms"},      {0.0123, "12ms"},  {0.1, "0.1s"},    {9.94, "9.9s"},
	            {9.96, "10s"},   {59.4, "59s"},     {59.6, "1m00s"},  {3599, "59m59s"},
	            {3600, "1h00m"}, {86399, "23h59m"}, {90000, "1d01h"}, {-1, "?"},
	            {1e300, "?"}};
	char text[16];

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		assert_string_equal(text_si(numbers[i].value, text), numbers[i].si);
	for (size_t i = 0; i < sizeof(ages) / sizeof(ages[0]); i++)
		assert_string_equal(text_age(ages[i].seconds, text), ages[i].age);
}

TEST(safe)
{
	char text[8];

	text_safe(text, sizeof(text), "\033[2J\n\x80~");
	assert_string_equal(text, "?[2J??~");
	text_safe(text, sizeof(text), "too long a text");
	assert_string_equal(text, "too lon");
}
