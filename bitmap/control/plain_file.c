// SPDX-License-Identifier: BSD-3-Clause
/* plain_file.c - see plain_file.h */

#include "bitmap/control/plain_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOM_LEAST 4096 /* files of /proc say that they have no bytes */
#define ROOM_SPARE 2 /* for the zero byte, and for one more that shows whether the file has grown */

static const char *kind_of(mode_t mode)
{
	return S_ISDIR(mode)    ? "a directory"
	       : S_ISFIFO(mode) ? "a pipe"
	       : S_ISSOCK(mode) ? "a socket"
	                        : "a device";
}

static void memory_free(char *memory, size_t bytes)
{
	if (memory != NULL)
		explicit_bzero(memory, bytes);
	free(memory);
}

/* realloc() would leave what the file said in memory that it gives back. */
static int room_grow(struct plain_file *file, size_t bytes, size_t used)
{
	char *grown = malloc(bytes);

	if (grown == NULL)
		return -ENOMEM;
	if (used > 0)
		memcpy(grown, file->text, used);
	memory_free(file->text, file->bytes);
	file->text = grown;
	file->bytes = bytes;
	return 0;
}

/* Sets *length. The file may grow meanwhile. */
static int bytes_read(int fd, size_t size, struct plain_file *out, size_t *length)
{
	int err = room_grow(out, size < ROOM_LEAST ? ROOM_LEAST : size + ROOM_SPARE, 0);
	ssize_t got = 1;

	*length = 0;
	while (err == 0 && got > 0) {
		got = read(fd, out->text + *length, out->bytes - *length - 1);
		if (got < 0)
			return -errno;
		*length += (size_t)got;
		if (*length > PLAIN_FILE_BYTES_MAX)
			return -EFBIG;
		if (*length + 1 == out->bytes)
			err = room_grow(out, 2 * out->bytes, *length);
	}
	if (err == 0)
		out->text[*length] = '\0';
	return err;
}

/* UTF-16 has a zero byte in most of its characters. Editors that call it "Unicode" put a mark before it. */
static int text_check(const char *text, size_t length, const char *what, const char *path,
                      struct why *why)
{
	if (length >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0))
		return why_set(why, -EINVAL, "cannot read %s%s: it is in UTF-16, save it as UTF-8",
		               what, path);
	if (memchr(text, '\0', length) != NULL)
		return why_set(why, -EINVAL,
		               "cannot read %s%s: it has a zero byte; if it is in UTF-16, save it "
		               "as UTF-8",
		               what, path);
	return 0;
}

static int text_read(int fd, const char *what, const char *path, struct plain_file *out,
                     struct why *why)
{
	struct stat about;
	size_t length = 0;
	int err;

	if (fstat(fd, &about) != 0)
		return why_set(why, -errno, "cannot read %s%s: %s", what, path, strerror(errno));
	if (!S_ISREG(about.st_mode))
		return why_set(why, -EINVAL, "cannot read %s%s: it is %s, not a regular file", what,
		               path, kind_of(about.st_mode));
	err = about.st_size > PLAIN_FILE_BYTES_MAX
	              ? -EFBIG
	              : bytes_read(fd, (size_t)about.st_size, out, &length);
	if (err == -EFBIG)
		return why_set(why, err, "cannot read %s%s: it is larger than %d MB", what, path,
		               PLAIN_FILE_BYTES_MAX >> 20);
	if (err != 0)
		return why_set(why, err, "cannot read %s%s: %s", what, path, strerror(-err));
	out->exposed = (about.st_mode & S_IROTH) != 0;
	out->next = out->text + (strncmp(out->text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0);
	return text_check(out->text, length, what, path, why);
}

int plain_file_read(const char *what, const char *path, struct plain_file *out, struct why *why)
{
	/* O_NONBLOCK: or a pipe would wait for its writer here. */
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
	memory_free(file->text, file->bytes);
	*file = (struct plain_file){0};
}
