// SPDX-License-Identifier: BSD-3-Clause
/* log.c - see log.h */

#include "aggregator/log.h"

#include <jansson.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EVENTS_MAX 32 /* kinds; there are fewer */
#define EVENT_BYTES 32

/* How often a kind of event has been written in its window. */
struct kind {
	char name[EVENT_BYTES]; /* "refused"; "": free */
	time_t since;
	uint32_t count, left_out;
};

static const char *const levels[] = {"info", "warn", "error"};
static int threshold;
static bool json;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows, and of stderr */
static struct kind kinds[EVENTS_MAX];

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

bool log_set_format(const char *format)
{
	json = strcmp(format, "json") == 0;
	return json || strcmp(format, "logfmt") == 0;
}

/* ---- as JSON ---- */

/* A number stays one. */
static json_t *value_json(const char *text)
{
	json_error_t error;
	json_t *value = json_loads(text, JSON_DECODE_ANY, &error);

	if (json_is_number(value))
		return value;
	json_decref(value);
	return json_string(text);
}

/* name=value name="a value"; our own lines, so what is not of that form ends it. */
static void pairs_json(json_t *object, char *line)
{
	while (*line != '\0') {
		char *value = strchr(line, '='), *end;
		bool quoted;

		if (value == NULL)
			return;
		*value++ = '\0';
		quoted = *value == '"';
		end = quoted ? strstr(++value, "\" ") : strchr(value, ' ');
		if (end == NULL) {
			end = value + strlen(value);
			if (quoted && end > value && end[-1] == '"')
				end[-1] = '\0';
		} else {
			*end = '\0';
			end += quoted ? 2 : 1;
		}
		json_object_set_new(object, line, quoted ? json_string(value) : value_json(value));
		line = end;
	}
}

static void write_json(const char *stamp, const char *level, char *line)
{
	json_t *object = json_pack("{s:s, s:s}", "time", stamp, "level", level);
	char *text;

	if (object == NULL)
		return;
	pairs_json(object, line);
	text = json_dumps(object, JSON_COMPACT);
	json_decref(object);
	if (text != NULL)
		fprintf(stderr, "%s\n", text);
	free(text);
}

static void write_line(const struct timespec *now, const char *level, char *line)
{
	char stamp[32], whole[48];
	struct tm utc;

	gmtime_r(&now->tv_sec, &utc);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &utc);
	snprintf(whole, sizeof(whole), "%s.%03ldZ", stamp, now->tv_nsec / 1000000);
	if (json)
		write_json(whole, level, line);
	else
		fprintf(stderr, "time=%s level=%s %s\n", whole, level, line);
}

/* ---- not too many ---- */

static void window_end(struct kind *kind, const struct timespec *now)
{
	char line[128];

	if (kind->left_out > 0) {
		snprintf(line, sizeof(line), "event=left_out of=%s lines=%u seconds=%lld",
		         kind->name, kind->left_out, (long long)(now->tv_sec - kind->since));
		write_line(now, "warn", line);
	}
	*kind = (struct kind){.name = ""};
}

/* May a line of this event, "event=refused ...", be written now? */
static bool admit(const char *line, const struct timespec *now)
{
	struct kind *place = NULL;
	char name[EVENT_BYTES];

	if (sscanf(line, "event=%31[^ ]", name) != 1)
		return true;
	for (uint32_t i = 0; i < EVENTS_MAX; i++) {
		struct kind *kind = &kinds[i];

		if (kind->name[0] != '\0' && now->tv_sec - kind->since >= LOG_WINDOW_S)
			window_end(kind, now);
		if (strcmp(kind->name, name) == 0)
			place = kind;
	}
	for (uint32_t i = 0; i < EVENTS_MAX && place == NULL; i++)
		if (kinds[i].name[0] == '\0')
			place = &kinds[i];
	if (place == NULL)
		return true;
	if (place->name[0] == '\0') {
		memcpy(place->name, name, sizeof(name));
		place->since = now->tv_sec;
	}
	if (place->count < LOG_BURST) {
		place->count++;
		return true;
	}
	place->left_out++;
	return false;
}

void log_flush(bool all)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < EVENTS_MAX; i++)
		if (kinds[i].left_out > 0 && (all || now.tv_sec - kinds[i].since >= LOG_WINDOW_S))
			window_end(&kinds[i], &now);
	pthread_mutex_unlock(&lock);
}

void log_event(const char *level, const char *format, ...)
{
	char line[768];
	struct timespec now;
	va_list args;

	if (level_of(level) < threshold)
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	pthread_mutex_lock(&lock);
	if (level_of(level) == 2 || admit(line, &now))
		write_line(&now, level, line);
	pthread_mutex_unlock(&lock);
}

void log_line(void *unused, const char *level, const char *text)
{
	(void)unused;
	log_event(level, "%s", text);
}
