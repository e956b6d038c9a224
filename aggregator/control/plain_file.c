// SPDX-License-Identifier: BSD-3-Clause
/* plain_file.c - see plain_file.h */

#include "aggregator/control/plain_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *kind_of(mode_t mode)
{
	return S_ISDIR(mode)    ? "a directory"
	       : S_ISFIFO(mode) ? "a pipe"
	       : S_ISSOCK(mode) ? "a socket"
	                        : "a device";
}

static int check(int fd, const char *what, const char *path, struct why *why)
{
	struct stat about;

	if (fstat(fd, &about) != 0)
		return why_set(why, -errno, "cannot read %s%s: %s", what, path, strerror(errno));
	if (!S_ISREG(about.st_mode))
		return why_set(why, -EINVAL, "cannot read %s%s: it is %s, not a regular file", what,
		               path, kind_of(about.st_mode));
	if (about.st_size > PLAIN_FILE_BYTES_MAX)
		return why_set(why, -EFBIG, "cannot read %s%s: it is larger than %d MB", what, path,
		               PLAIN_FILE_BYTES_MAX >> 20);
	return 0;
}

int plain_file_open(const char *what, const char *path, FILE **out, struct why *why)
{
	/* O_NONBLOCK: or a pipe would wait for its writer here. */
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), err;
	FILE *file = NULL;

	if (fd < 0)
		return why_set(why, -errno, "cannot read %s%s: %s", what, path, strerror(errno));
	err = check(fd, what, path, why);
	if (err == 0) {
		file = fdopen(fd, "r");
		if (file == NULL)
			err = why_set(why, -ENOMEM, "out of memory");
	}
	if (err != 0)
		close(fd);
	else
		*out = file;
	return err;
}
