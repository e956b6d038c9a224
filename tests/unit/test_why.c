// SPDX-License-Identifier: BSD-3-Clause
/* test_why.c - a reason, a reason within a reason, and one that is too long */

#include <errno.h>
#include <string.h>

#include "bitmap/why.h"
#include "tests/unit/unit.h"

TEST(said)
{
	struct why why = {""};

	assert_int_equal(why_set(&why, -ENOENT, "no %s on port %d", "cable", 3), -ENOENT);
	assert_string_equal(why.text, "no cable on port 3");
	assert_int_equal(why_set(&why, 2, "cannot start: %s (%s)", why.text, why.text), 2);
	assert_string_equal(why.text, "cannot start: no cable on port 3 (no cable on port 3)");
	assert_int_equal(why_set(&why, 0, "%s", ""), 0);
	assert_string_equal(why.text, "");
	/* One line, which a terminal does not obey, in any language. */
	why_set(&why, 0, "no %s", "b\xc3\xbcro\n\x1b[2J\x7f");
	assert_string_equal(why.text, "no b\xc3\xbcro??[2J?");
}

TEST(cut)
{
	char longer[2 * WHY_BYTES];
	struct {
		struct why why;
		char behind;
	} room = {.behind = 'b'};

	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	why_set(&room.why, 0, "%s", longer);
	assert_int_equal(strlen(room.why.text), WHY_BYTES - 1);
	why_set(&room.why, 0, "again: %s", room.why.text);
	assert_int_equal(strlen(room.why.text), WHY_BYTES - 1);
	assert_memory_equal(room.why.text, "again: x", 8);
	assert_int_equal(room.behind, 'b');
}

TEST(added)
{
	struct {
		char text[8], behind;
	} room = {.text = "a", .behind = 'b'};

	text_add(room.text, sizeof(room.text), "%s%u", ", ", 2u);
	assert_string_equal(room.text, "a, 2");
	for (int i = 0; i < 3; i++) { /* the second and third find no room */
		text_add(room.text, sizeof(room.text), "%s", "345678");
		assert_string_equal(room.text, "a, 2345");
	}
	memset(room.text, 'x', sizeof(room.text)); /* no end at all */
	text_add(room.text, sizeof(room.text), "y");
	assert_memory_equal(room.text, "xxxxxxxx", 8);
	assert_int_equal(room.behind, 'b');
}
