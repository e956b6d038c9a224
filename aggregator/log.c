// SPDX-License-Identifier: BSD-3-Clause
/* log.c - see log.h */

#include "aggregator/log.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "aggregator/privileges.h"

#define KINDS_MAX 64 /* there are fewer */
#define KIND_BYTES 64

/* How often a kind of event has been written in its window. */
struct kind {
	char name[KIND_BYTES]; /* "drain", "refused code=key"; "": free */
	time_t since;
	uint32_t count, left_out;
};

struct line {
	struct line *next;
	size_t bytes;
	char *text; /* with its newline */
};

static const char *const levels[] = {"info", "warn", "error"};
static int threshold;
static bool json;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
static struct kind kinds[KINDS_MAX];
static struct {
	struct line *first, **end; /* the first is being written */
	size_t bytes;
	uint64_t lost, lost_unsaid;
	pthread_cond_t changed;
	pthread_t writer;
	int fd;
	bool open, ending;
} queue = {.end = &queue.first};

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

static char *line_json(const char *stamp, const char *level, char *pairs)
{
	json_t *object = json_pack("{s:s, s:s}", "time", stamp, "level", level);
	char *text, *line = NULL;

	if (object == NULL)
		return NULL;
	pairs_json(object, pairs);
	text = json_dumps(object, JSON_COMPACT);
	json_decref(object);
	if (text != NULL && asprintf(&line, "%s\n", text) < 0)
		line = NULL;
	free(text);
	return line;
}

/* In malloc'ed memory; NULL: there is none. */
static char *line_text(const struct timespec *now, const char *level, char *pairs)
{
	char stamp[32], whole[48], *line;
	struct tm utc;

	gmtime_r(&now->tv_sec, &utc);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &utc);
	snprintf(whole, sizeof(whole), "%s.%03ldZ", stamp, now->tv_nsec / 1000000);
	if (json)
		return line_json(whole, level, pairs);
	return asprintf(&line, "time=%s level=%s %s\n", whole, level, pairs) < 0 ? NULL : line;
}

/* ---- the queue ---- */

static bool queue_put(const struct timespec *now, const char *level, char *pairs)
{
	struct line *line = calloc(1, sizeof(*line));
	char *text = line_text(now, level, pairs);
	size_t bytes = text != NULL ? strlen(text) : 0;

	if (line == NULL || text == NULL || queue.bytes + bytes > LOG_QUEUE_BYTES) {
		free(line);
		free(text);
		return false;
	}
	*line = (struct line){.bytes = bytes, .text = text};
	*queue.end = line;
	queue.end = &line->next;
	queue.bytes += bytes;
	pthread_cond_broadcast(&queue.changed);
	return true;
}

/* Lines flow again: say what has not come. Until half the queue is free more are lost, so that it is said once. */
static void say_lost(const struct timespec *now)
{
	char pairs[160];

	if (queue.lost_unsaid == 0 || queue.bytes > LOG_QUEUE_BYTES / 2)
		return;
	snprintf(pairs, sizeof(pairs),
	         "event=lines_lost lines=%llu text=\"whatever reads stderr was too slow\"",
	         (unsigned long long)queue.lost_unsaid);
	if (queue_put(now, "warn", pairs))
		queue.lost_unsaid = 0;
}

static void write_line(const struct timespec *now, const char *level, char *pairs)
{
	say_lost(now);
	if (queue.lost_unsaid == 0 && queue_put(now, level, pairs))
		return;
	queue.lost++;
	queue.lost_unsaid++;
}

/* False: nobody will ever read it. */
static bool write_whole(int fd, const struct line *line)
{
	struct pollfd full = {.fd = fd, .events = POLLOUT};
	size_t done = 0;

	while (done < line->bytes) {
		ssize_t wrote = write(fd, line->text + done, line->bytes - done);

		if (wrote > 0)
			done += (size_t)wrote;
		else if (wrote < 0 && errno == EAGAIN) /* somebody else has made it so */
			(void)poll(&full, 1, -1);
		else if (wrote < 0 && errno != EINTR)
			return false;
	}
	return true;
}

static void *run(void *unused)
{
	struct timespec now;
	struct line *line;
	bool written;

	(void)unused;
	pthread_setname_np(pthread_self(), "winnow-log");
	(void)privileges_drop();
	pthread_mutex_lock(&lock);
	while (queue.first != NULL || !queue.ending) {
		line = queue.first;
		if (line == NULL) {
			pthread_cond_wait(&queue.changed, &lock);
			continue;
		}
		pthread_mutex_unlock(&lock);
		written = write_whole(queue.fd, line);
		clock_gettime(CLOCK_REALTIME, &now);
		pthread_mutex_lock(&lock);
		queue.lost += !written;
		queue.bytes -= line->bytes;
		queue.first = line->next;
		if (queue.first == NULL)
			queue.end = &queue.first;
		free(line->text);
		free(line);
		say_lost(&now);
		pthread_cond_broadcast(&queue.changed);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

int log_open(int fd)
{
	pthread_condattr_t by_monotonic;
	int err;

	pthread_condattr_init(&by_monotonic);
	pthread_condattr_setclock(&by_monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&queue.changed, &by_monotonic);
	pthread_condattr_destroy(&by_monotonic);
	queue.fd = fd;
	queue.ending = false;
	err = -pthread_create(&queue.writer, NULL, run, NULL);
	queue.open = err == 0;
	return err;
}

/* A writer that stands still is left alone: it ends with the process. */
void log_close(void)
{
	struct timespec until;
	bool stuck = false;

	if (!queue.open)
		return;
	log_flush(true);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += LOG_END_MS / 1000;
	pthread_mutex_lock(&lock);
	queue.ending = true;
	pthread_cond_broadcast(&queue.changed);
	while (queue.first != NULL && !stuck)
		stuck = pthread_cond_timedwait(&queue.changed, &lock, &until) == ETIMEDOUT;
	pthread_mutex_unlock(&lock);
	queue.open = false;
	if (stuck)
		pthread_detach(queue.writer);
	else
		pthread_join(queue.writer, NULL);
}

uint64_t log_lines_lost(void)
{
	uint64_t lost;

	pthread_mutex_lock(&lock);
	lost = queue.lost;
	pthread_mutex_unlock(&lock);
	return lost;
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

/* Of "event=refused peer=.. code=key text=\"..\"" it is "refused code=key": a flood of one hides no other. */
static bool kind_of(const char *line, char name[KIND_BYTES])
{
	const char *code = strstr(line, " code="), *quote = strchr(line, '"');
	char event[32];
	size_t length = 0;

	if (sscanf(line, "event=%31[^ ]", event) != 1)
		return false;
	if (code != NULL && (quote == NULL || code < quote)) /* what is quoted may be a peer's */
		length = 1 + strcspn(code + 1, " ");
	snprintf(name, KIND_BYTES, "%s%.*s", event, (int)length, length > 0 ? code : "");
	return true;
}

/* May a line of its kind be written now? */
static bool admit(const char *line, const struct timespec *now)
{
	struct kind *place = NULL;
	char name[KIND_BYTES];

	if (!kind_of(line, name))
		return true;
	for (uint32_t i = 0; i < KINDS_MAX; i++) {
		struct kind *kind = &kinds[i];

		if (kind->name[0] != '\0' && now->tv_sec - kind->since >= LOG_WINDOW_S)
			window_end(kind, now);
		if (strcmp(kind->name, name) == 0)
			place = kind;
	}
	for (uint32_t i = 0; i < KINDS_MAX && place == NULL; i++)
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
	for (uint32_t i = 0; i < KINDS_MAX; i++)
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
