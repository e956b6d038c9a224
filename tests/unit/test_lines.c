// SPDX-License-Identifier: BSD-3-Clause
/* test_lines.c - lines from any pieces */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bitmap/control/lines.h"
#include "tests/unit/unit.h"

struct collected {
	uint32_t count;
	uint32_t stop_at; /* return 7 for this line, counted from 1 */
	char text[64];    /* the lines, each ended by a '|' */
	size_t last_length;
};

static int collect(void *context, const char *line)
{
	struct collected *all = context;
	size_t used = strlen(all->text);

	all->count++;
	all->last_length = strlen(line);
	if (used + all->last_length + 2 <= sizeof(all->text))
		sprintf(all->text + used, "%s|", line);
	return all->count == all->stop_at ? 7 : 0;
}

/* Cut in two anywhere, a stream gives the same lines; what has no end yet waits. */
TEST(lines_cut)
{
	const char stream[] = "one\n\n{\"two\": 2}\r\nthree";
	const size_t bytes = sizeof(stream) - 1;

	for (size_t cut = 0; cut <= bytes; cut++) {
		struct lines lines = {0};
		struct collected all = {0};

		assert_int_equal(lines_feed(&lines, stream, cut, collect, &all), 0);
		assert_int_equal(lines_feed(&lines, stream + cut, bytes - cut, collect, &all), 0);
		assert_string_equal(all.text, "one||{\"two\": 2}\r|");
		assert_int_equal(lines_feed(&lines, "\n", 1, collect, &all), 0);
		assert_string_equal(all.text, "one||{\"two\": 2}\r|three|");
	}
}

/* 8191 bytes with the newline are the most; then an empty buffer begins again. */
TEST(lines_length)
{
	static char text[LINES_BYTES_MAX + 1];
	struct lines lines = {0};
	struct collected all = {0};

	memset(text, 'x', sizeof(text));
	text[LINES_BYTES_MAX - 2] = '\n';
	for (uint32_t i = 1; i <= 3; i++) {
		assert_int_equal(lines_feed(&lines, text, LINES_BYTES_MAX - 1, collect, &all), 0);
		assert_int_equal(all.count, i);
		assert_int_equal(all.last_length, LINES_BYTES_MAX - 2);
	}
	text[LINES_BYTES_MAX - 2] = 'x';
	text[LINES_BYTES_MAX - 1] = '\n';
	assert_int_equal(lines_feed(&lines, text, LINES_BYTES_MAX, collect, &all), -EMSGSIZE);
	assert_int_equal(all.count, 3);
	memset(&lines, 0, sizeof(lines));
	for (uint32_t i = 0; i < LINES_BYTES_MAX - 1; i++)
		assert_int_equal(lines_feed(&lines, "y", 1, collect, &all), 0);
	assert_int_equal(lines_feed(&lines, "y", 1, collect, &all), -EMSGSIZE);
}

TEST(lines_refused)
{
	struct lines lines = {0};
	struct collected all = {.stop_at = 2};

	assert_int_equal(lines_feed(&lines, "a\nb\nc\n", 6, collect, &all), 7);
	assert_string_equal(all.text, "a|b|");
	memset(&lines, 0, sizeof(lines));
	assert_int_equal(lines_feed(&lines, "d\0e\n", 4, collect, &all), -EMSGSIZE);
	assert_int_equal(all.count, 2);
}
