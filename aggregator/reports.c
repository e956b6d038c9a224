// SPDX-License-Identifier: BSD-3-Clause
/* reports.c - see reports.h */

#include "aggregator/reports.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

_Static_assert(sizeof(struct report) <= PIPE_BUF, "a pipe takes a report whole or not at all");

int reports_open(struct reports *reports)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0)
		return -errno;
	*reports = (struct reports){.read_fd = fds[0], .write_fd = fds[1]};
	return 0;
}

void reports_close(struct reports *reports)
{
	close(reports->read_fd);
	close(reports->write_fd);
}

void reports_put(void *context, const struct report *report)
{
	const struct reports *reports = context;

	(void)!write(reports->write_fd, report, sizeof(*report));
}

bool reports_take(const struct reports *reports, struct report *out)
{
	return read(reports->read_fd, out, sizeof(*out)) == sizeof(*out);
}

void reports_forget(const struct reports *reports)
{
	struct report unused;

	while (reports_take(reports, &unused))
		;
}
