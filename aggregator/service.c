// SPDX-License-Identifier: BSD-3-Clause
/* service.c - see service.h */

#include "aggregator/service.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Sends one datagram, like libsystemd's sd_notify(), but without compression and crypto. */
void service_tell(const char *format, ...)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	const char *path = secure_getenv("NOTIFY_SOCKET");
	size_t length = path != NULL ? strlen(path) : 0;
	char text[256];
	va_list args;
	int fd;

	if (length < 2 || length >= sizeof(to.sun_path) || (path[0] != '/' && path[0] != '@'))
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	memcpy(to.sun_path, path, length);
	if (path[0] == '@')
		to.sun_path[0] = '\0'; /* an abstract socket */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	/* If the manager does not listen, it will say so itself. */
	(void)!sendto(fd, text, strlen(text), MSG_NOSIGNAL, (const struct sockaddr *)&to,
	              (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
	close(fd);
}

uint64_t service_watchdog_ms(void)
{
	const char *limit = secure_getenv("WATCHDOG_USEC"), *pid = secure_getenv("WATCHDOG_PID");
	unsigned long long us;
	char *end;

	if (limit == NULL || (pid != NULL && strtoll(pid, NULL, 10) != getpid()))
		return 0;
	errno = 0;
	us = strtoull(limit, &end, 10);
	if (errno != 0 || end == limit || *end != '\0' || us == 0)
		return 0;
	return us >= 2000 ? us / 2000 : 1;
}
