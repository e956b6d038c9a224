// SPDX-License-Identifier: BSD-3-Clause
/* screen.c - see screen.h */

#include "client/cli/status/screen.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define ENTER "\033[?1049h\033[?25l\033[?7l" /* other screen, no cursor, no wrapping */
#define LEAVE "\033[?7h\033[?25h\033[?1049l"
#define WIDTH_MIN 20
#define HEIGHT_MIN 4
#define PICTURE_BYTES (256u * 1024) /* that go out at once */

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP};

static uv_tty_t keyboard;
static uv_signal_t signals[sizeof(numbers) / sizeof(numbers[0])];
static void (*on_key)(int key);

bool screen_usable(void)
{
	const char *term = secure_getenv("TERM");

	return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term != NULL &&
	       strcmp(term, "dumb") != 0 && *term != '\0';
}

static int take_over(void)
{
	int err = uv_tty_set_mode(&keyboard, UV_TTY_MODE_RAW);

	return err != 0 ? err : fputs(ENTER, stdout) >= 0 && fflush(stdout) == 0 ? 0 : -EIO;
}

void screen_close(void)
{
	fputs(LEAVE, stdout);
	fflush(stdout);
	uv_tty_set_mode(&keyboard, UV_TTY_MODE_NORMAL);
}

/* The shell gets its terminal back. When it continues us, we take it again. */
static void suspend(void)
{
	screen_close();
	raise(SIGSTOP);
	(void)take_over();
}

static void on_signal(uv_signal_t *signal, int number)
{
	(void)signal;
	if (number == SIGTSTP)
		suspend();
	on_key(number == SIGTSTP || number == SIGWINCH ? 'r' : 'q');
}

static void on_room(uv_handle_t *handle, size_t wanted, uv_buf_t *out)
{
	static char keys[64];

	(void)handle;
	(void)wanted;
	*out = uv_buf_init(keys, sizeof(keys));
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *keys)
{
	bool quit = count < 0; /* the terminal is gone */

	(void)stream;
	for (ssize_t i = 0; i < count; i++) {
		quit = quit || memchr("qQ\003", keys->base[i], 3) != NULL;
		if (keys->base[i] == CTRL('Z'))
			suspend();
	}
	on_key(quit ? 'q' : 'r');
}

int screen_open(uv_loop_t *loop, void (*key)(int key))
{
	static char picture[PICTURE_BYTES];
	int err = uv_tty_init(loop, &keyboard, STDIN_FILENO, 1);

	setvbuf(stdout, picture, _IOFBF, sizeof(picture));
	on_key = key;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]) && err == 0; i++) {
		err = uv_signal_init(loop, &signals[i]);
		if (err == 0)
			err = uv_signal_start(&signals[i], on_signal, numbers[i]);
	}
	if (err == 0)
		err = take_over();
	return err != 0 ? err : uv_read_start((uv_stream_t *)&keyboard, on_room, on_read);
}

void screen_size(uint32_t *width, uint32_t *height)
{
	struct winsize size = {0};

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
		size = (struct winsize){.ws_col = 80, .ws_row = 24};
	*width = size.ws_col > WIDTH_MIN ? size.ws_col : WIDTH_MIN;
	*height = size.ws_row > HEIGHT_MIN ? size.ws_row : HEIGHT_MIN;
}

/* Each line is cleared behind its end, and the screen below the last: nothing is blanked first. */
bool screen_draw(const char *text)
{
	uint32_t width, height, lines = 0;

	screen_size(&width, &height);
	printf("\033[H");
	while (*text != '\0' && lines < height) {
		size_t length = strcspn(text, "\n");

		printf("%s%.*s\033[K", lines > 0 ? "\r\n" : "",
		       (int)(length < width ? length : width), text);
		text += length + (text[length] == '\n');
		lines++;
	}
	printf("\033[J");
	return fflush(stdout) == 0;
}
