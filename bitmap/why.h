/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * why.h - why something has failed, as one line for people
 *
 * A function that can fail for a reason worth telling takes a struct why, and returns 0 or a negative
 * errno with the reason set; the client's own return an enum winnow_result or an exit status instead.
 * Where nothing has failed the text is as it was. It is one line whatever it quotes: control characters
 * show as '?'.
 */
#ifndef BITMAP_WHY_H
#define BITMAP_WHY_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define WHY_BYTES 1024 /* what is longer is cut */

struct why {
	char text[WHY_BYTES];
};

/* text_show - what would end a line, or what a terminal obeys, becomes '?'. Letters of UTF-8 stay. */
static inline void text_show(char *text)
{
	for (; *text != '\0'; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			*text = '?';
}

/* why_set - returns `status`. The arguments may hold why->text, to say more about it. */
__attribute__((format(printf, 3, 4))) static inline int why_set(struct why *why, int status,
                                                                const char *format, ...)
{
	char text[WHY_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	text_show(text);
	memcpy(why->text, text, strlen(text) + 1);
	return status;
}

/*
 * text_add - continues the text in `text`, an array of `room` bytes. What does not fit is cut. It is
 * the one way to write behind a text: snprintf() returns what it wanted, not what it has written.
 */
__attribute__((format(printf, 3, 4))) static inline void text_add(char *text, size_t room,
                                                                  const char *format, ...)
{
	size_t used = strnlen(text, room);
	va_list args;

	va_start(args, format);
	if (used < room)
		vsnprintf(text + used, room - used, format, args);
	va_end(args);
}

#endif /* BITMAP_WHY_H */
