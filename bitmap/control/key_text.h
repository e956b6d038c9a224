/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * key_text.h - how keys are written: one rule for lines of key files and for keys that stand alone
 *
 * Blanks (spaces and tabs) part words. Not part of any are a byte order mark before all, blanks and line
 * ends around, and a comment: a '#' at the beginning or behind a blank, and all that follows. Any other
 * '#' belongs to its word. Control characters belong to none.
 */
#ifndef BITMAP_CONTROL_KEY_TEXT_H
#define BITMAP_CONTROL_KEY_TEXT_H

#include "bitmap/why.h"

/*
 * key_text_words - cuts `line` in place into up to `max` words. Returns how many there are; -E2BIG:
 * more; -EINVAL: there is a control character.
 */
int key_text_words(char *line, char *words[], int max);

/*
 * key_text_one - a key that stands alone: of the environment, an option or a program. Returns 0 and
 * *out, the one word, which key_text_free() frees; or -errno and `why`, which says `named` of it.
 */
int key_text_one(const char *named, const char *text, char **out, struct why *why);

/* Wiped. NULL is fine. */
void key_text_free(char *text);

#endif /* BITMAP_CONTROL_KEY_TEXT_H */
