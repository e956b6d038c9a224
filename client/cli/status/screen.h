/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * screen.h - a whole-screen display on an ANSI terminal, and its keys
 *
 * Six escape sequences that every terminal of the last decades obeys, so no terminal library and
 * none of its data base, which small containers lack. Each picture is one write over the one
 * before: nothing flickers. The terminal is put back as it was, whatever ends the program but
 * SIGKILL.
 */
#ifndef CLIENT_CLI_SCREEN_H
#define CLIENT_CLI_SCREEN_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* screen_usable - are stdin and stdout a terminal that can do it? */
bool screen_usable(void);

/*
 * screen_open - take over the terminal and the signals. Calls key() with 'q' for q, ^C, SIGTERM and the
 * like, and with 'r' when the picture is to be drawn again. 0, or libuv's -errno.
 */
int screen_open(uv_loop_t *loop, void (*key)(int key));
void screen_close(void);

/* screen_size - now; a window may be of any size. */
void screen_size(uint32_t *width, uint32_t *height);

/* screen_draw - lines that are no longer than the width; what is below the last is cut off. */
bool screen_draw(const char *text);

#endif /* CLIENT_CLI_SCREEN_H */
