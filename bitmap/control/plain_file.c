// SPDX-License-Identifier: BSD-3-Clause
/* plain_file.c - see plain_file.h */

#include "bitmap/control/plain_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Room for the zero byte and for one byte too many. Unread pages cost no memory. */
#define ROOM_BYTES (PLAIN_FILE_BYTES_MAX + 2)

static const char *kind_of(mode_t mode)
{
	return S_ISDIR(mode)    ? "a directory"
	       : S_ISFIFO(mode) ? "a pipe"
	       : S_ISSOCK(mode) ? "a socket"
	                        : "a device";
}

/* Reads to the end, which may move meanwhile. Files in /proc claim to have no bytes. */
static int bytes_read(int fd, struct plain_file *out)
{
	ssize_t got = 1;

	out->text = malloc(ROOM_BYTES);
	if (out->text == NULL)
		return -ENOMEM;
	while (got > 0 && out->bytes <= PLAIN_FILE_BYTES_MAX) {
		got = read(fd, out->text + out->bytes, ROOM_BYTES - 1 - out->bytes);
		if (got < 0)
			return -errno;
		out->bytes += (size_t)got;
	}
	out->text[out->bytes] = '\0';
	return got > 0 ? -EFBIG : 0;
}

/* UTF-16 has a zero byte in most of its characters, and often a byte order mark. */
static int text_check(const char *text, size_t length, const char *what, const char *path,
                      struct why *why)
{
	if (length >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0))
		return why_set(why, -EINVAL, "cannot read %s%s: it is in UTF-16, save it as UTF-8",
		               what, path);
	if (memchr(text, '\0', length) != NULL)
		return why_set(why, -EINVAL,
		               "cannot read %s%s: it has a zero byte; if it is in UTF-16, save "
		               "it as UTF-8",
		               what, path);
	return 0;
}

static int text_read(int fd, const char *what, const char *path, struct plain_file *out,
                     struct why *why)
{
	struct stat about;
	int err;

	if (fstat(fd, &about) != 0)
		return why_set(why, -errno, "cannot read %s%s: %s", what, path, strerror(errno));
	if (!S_ISREG(about.st_mode))
		return why_set(why, -EINVAL, "cannot read %s%s: it is %s, not a regular file", what,
		               path, kind_of(about.st_mode));
	err = about.st_size > PLAIN_FILE_BYTES_MAX ? -EFBIG : bytes_read(fd, out);
	if (err == -EFBIG)
		return why_set(why, err, "cannot read %s%s: it is larger than %d MB", what, path,
		               PLAIN_FILE_BYTES_MAX >> 20);
	if (err != 0)
		return why_set(why, err, "cannot read %s%s: %s", what, path, strerror(-err));
	out->exposed = (about.st_mode & S_IROTH) != 0;
	out->next = out->text + (strncmp(out->text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0);
	return text_check(out->text, out->bytes, what, path, why);
}

int plain_file_read(const char *what, const char *path, struct plain_file *out, struct why *why)
{
	/* O_NONBLOCK keeps a pipe from waiting for its writer here. */
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), err;

	if (fd < 0)
		return why_set(why, -errno, "cannot read %s%s: %s", what, path, strerror(errno));
	*out = (struct plain_file){0};
	err = text_read(fd, what, path, out, why);
	if (err != 0)
		plain_file_free(out);
	close(fd);
	return err;
}

char *plain_file_line(struct plain_file *file)
{
	char *line = file->next, *end;

	if (*line == '\0')
		return NULL;
	end = strchrnul(line, '\n');
	file->next = *end == '\n' ? end + 1 : end;
	*end = '\0';
	return line;
}

void plain_file_free(struct plain_file *file)
{
	if (file->text != NULL)
		explicit_bzero(file->text, file->bytes);
	free(file->text);
	*file = (struct plain_file){0};
}
