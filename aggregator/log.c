// SPDX-License-Identifier: BSD-3-Clause
/* log.c - see log.h */

#include "aggregator/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *const levels[] = {"info", "warn", "error"};
static int threshold;

static int level_of(const char *level)
{
	for (int i = 0; i < 3; i++)
		if (strcmp(levels[i], level) == 0)
			return i;
	return -1;
}

bool log_set_level(const char *level)
{
	int found = level_of(level);

	if (found >= 0)
		threshold = found;
	return found >= 0;
}

void log_event(const char *level, const char *format, ...)
{
	char line[768], stamp[32];
	struct timespec now;
	struct tm utc;
	va_list args;

	if (level_of(level) < threshold)
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &utc);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &utc);
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	fprintf(stderr, "time=%s.%03ldZ level=%s %s\n", stamp, now.tv_nsec / 1000000, level, line);
}
