// SPDX-License-Identifier: BSD-3-Clause
/* key_text.c - see key_text.h */

#include "bitmap/control/key_text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define BLANKS " \t"
#define LINE_ENDS "\r\n"
#define MARK "\xef\xbb\xbf" /* of UTF-8's byte order */

static bool has_control(const char *text)
{
	for (; *text != '\0'; text++)
		if (((unsigned char)*text < ' ' && *text != '\t') || *text == 0x7f)
			return true;
	return false;
}

/* Takes off what no word has at its end. */
static void line_end(char *line)
{
	size_t length = strlen(line);

	while (length > 0 && strchr(BLANKS LINE_ENDS, line[length - 1]) != NULL)
		length--;
	line[length] = '\0';
}

/* The comment, or the end. */
static char *comment_at(char *line)
{
	char *at = strchrnul(line, '#');

	while (*at != '\0' && at > line && strchr(BLANKS, at[-1]) == NULL)
		at = strchrnul(at + 1, '#');
	return at;
}

int key_text_words(char *line, char *words[], int max)
{
	int count = 0;
	char *save = NULL;

	line_end(line);
	*comment_at(line) = '\0';
	if (has_control(line))
		return -EINVAL;
	for (char *word = strtok_r(line, BLANKS, &save); word != NULL;
	     word = strtok_r(NULL, BLANKS, &save)) {
		if (count == max)
			return -E2BIG;
		words[count++] = word;
	}
	return count;
}

int key_text_one(const char *named, const char *text, char **out, struct why *why)
{
	bool marked = strncmp(text, MARK, strlen(MARK)) == 0;
	const char *begin = text + (marked ? strlen(MARK) : 0);
	char *copy, *word, *found = NULL;
	size_t bytes;
	int count;

	begin += strspn(begin, BLANKS LINE_ENDS);
	bytes = strlen(begin) + 1;
	copy = strdup(begin);
	count = copy != NULL ? key_text_words(copy, &word, 1) : 0;
	if (count == 1)
		found = strdup(word);
	if (copy != NULL)
		explicit_bzero(copy, bytes);
	free(copy);
	if (count == -E2BIG)
		return why_set(why, -EINVAL,
		               "%s: there is a blank in the key; want the key alone, without a "
		               "job's name",
		               named);
	if (count < 0)
		return why_set(why, -EINVAL,
		               "%s: there is a line end, or another control character, in the key",
		               named);
	if (copy != NULL && count == 0)
		return why_set(why, -EINVAL, "%s: there is no key%s", named,
		               *begin == '#' ? "; '#' begins a comment" : "");
	if (found == NULL)
		return why_set(why, -ENOMEM, "out of memory");
	*out = found;
	return 0;
}

void key_text_free(char *text)
{
	if (text != NULL)
		explicit_bzero(text, strlen(text));
	free(text);
}
