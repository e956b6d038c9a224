/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * why.h - the reason for a failure, as one line for people
 *
 * A function that can fail for a reason worth telling takes a struct why, and returns 0 or a
 * negative errno with the reason set. The client's functions return an enum winnow_result or an
 * exit status instead. A call that succeeds leaves the text as it was. The text is one line
 * whatever it quotes, because control characters become '?'.
 */
#ifndef BITMAP_WHY_H
#define BITMAP_WHY_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define WHY_BYTES 1024 /* longer texts are cut */

struct why {
	char text[WHY_BYTES];
};

/* text_show - replaces control characters, which end lines or steer terminals, by '?'. */
static inline void text_show(char *text)
{
	for (; *text != '\0'; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			*text = '?';
}

/* why_set - returns `status`. The arguments may include why->text, to extend it. */
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
 * text_add - appends to `text`, an array of `room` bytes, and cuts what does not fit. Always use it
 * to append: snprintf() returns the length that it wanted, not what it has written.
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
