// SPDX-License-Identifier: BSD-3-Clause
/* screen.c - see screen.h */

#include "client/cli/status/screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "aggregator/net/clock.h"

#define ENTER "\033[?1049h\033[?25l\033[?7l" /* other screen, no cursor, no wrapping */
#define LEAVE "\033[?7h\033[?25h\033[?1049l"
#define WIDTH_MIN 20
#define HEIGHT_MIN 4

static struct termios before;
static sigset_t unblocked; /* while waiting; else signals wait until they are asked for */
static volatile sig_atomic_t ended, resized, suspended;
static bool quit;

static void on_signal(int number)
{
	if (number == SIGWINCH)
		resized = 1;
	else if (number == SIGTSTP)
		suspended = 1;
	else
		ended = 1;
}

bool screen_usable(void)
{
	const char *term = getenv("TERM");

	return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term != NULL &&
	       strcmp(term, "dumb") != 0 && *term != '\0';
}

static bool write_all(const char *text, size_t bytes)
{
	while (bytes > 0) {
		ssize_t count = write(STDOUT_FILENO, text, bytes);

		if (count < 0 && errno != EINTR)
			return false;
		if (count > 0) {
			text += count;
			bytes -= (size_t)count;
		}
	}
	return true;
}

static int take_over(void)
{
	struct termios raw = before;

	raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
	raw.c_cc[VMIN] = 0;
	raw.c_cc[VTIME] = 0;
	if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) != 0)
		return -errno;
	return write_all(ENTER, strlen(ENTER)) ? 0 : -EIO;
}

static void give_back(void)
{
	(void)write_all(LEAVE, strlen(LEAVE));
	tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

int screen_open(void)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP};
	struct sigaction action = {.sa_handler = on_signal};
	sigset_t ours;

	sigemptyset(&ours);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sigaddset(&ours, numbers[i]);
	sigprocmask(SIG_BLOCK, &ours, &unblocked);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sigaction(numbers[i], &action, NULL);
	if (tcgetattr(STDIN_FILENO, &before) != 0)
		return -errno;
	return take_over();
}

void screen_close(void)
{
	give_back();
}

/* ^Z: the shell gets its terminal back, and we ours when it lets us go on. */
static void suspend(void)
{
	suspended = 0;
	give_back();
	raise(SIGSTOP);
	(void)take_over();
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
	char *picture = NULL;
	size_t bytes;
	bool drawn;
	FILE *out = open_memstream(&picture, &bytes);

	if (out == NULL)
		return false;
	screen_size(&width, &height);
	fprintf(out, "\033[H");
	while (*text != '\0' && lines < height) {
		size_t length = strcspn(text, "\n");

		fprintf(out, "%s%.*s\033[K", lines > 0 ? "\r\n" : "",
		        (int)(length < width ? length : width), text);
		text += length + (text[length] == '\n');
		lines++;
	}
	fprintf(out, "\033[J");
	drawn = fclose(out) == 0 && write_all(picture, bytes);
	free(picture);
	return drawn;
}

/* Keys that wait; others than 'q' and ^C mean: draw again. */
static int keys_read(void)
{
	char keys[64];
	ssize_t count = read(STDIN_FILENO, keys, sizeof(keys));

	if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN))
		quit = true; /* the terminal is gone */
	for (ssize_t i = 0; i < count; i++)
		quit = quit || keys[i] == 'q' || keys[i] == 'Q' || keys[i] == 3;
	return quit ? 'q' : 'r';
}

int screen_wait(uint64_t timeout_us)
{
	struct timespec timeout = clock_timespec(timeout_us);
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	int count = ppoll(&in, 1, &timeout, &unblocked);

	if (ended || quit)
		return 'q';
	if (suspended || resized) {
		if (suspended)
			suspend();
		resized = 0;
		return 'r';
	}
	return count > 0 ? keys_read() : 0;
}

bool screen_stop(void)
{
	return screen_wait(0) == 'q';
}
