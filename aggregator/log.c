// SPDX-License-Identifier: BSD-3-Clause
/* log.c - see log.h */

#include "aggregator/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "aggregator/privileges.h"

#define KINDS_MAX 64 /* more than there are */
#define NAME_BYTES 32

/* How often an event, or an event with this code=, was written in its window. */
struct kind {
	char name[NAME_BYTES]; /* Such as "refused"; "" if it is free. */
	char code[NAME_BYTES]; /* Such as "key"; may be "". */
	time_t since;
	uint32_t count, left_out;
};

static const char *const levels[] = {"info", "warn", "error"};
static int threshold;
static bool json;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for everything below */
static struct kind kinds[KINDS_MAX];
static struct {
	int in, out; /* ends of a pipe that holds lines for the writer; -1: none yet */
	uint64_t lost, lost_unsaid;
	pthread_t writer;
	int fd;
	bool open;
} queue = {.in = -1, .out = -1};

static int level_of(const char *level)
{
	for (int i = 0; i < 3; i++)
		if (strcmp(levels[i], level) == 0)
			return i;
	return -1;
}

void log_set(int least, enum log_format format)
{
	threshold = least;
	json = format == LOG_JSON;
}

/* ---- a line ---- */

/* An event with its fields, and its text last. */
struct event {
	const char *level, *name;
	const struct log_field *fields; /* NULL if there are none */
	const char *text;               /* NULL if there is none */
};

/* Returns the value of field `name`, a word, or "". */
static const char *word_of(const struct event *event, const char *name)
{
	for (const struct log_field *f = event->fields; f != NULL && f->name != NULL; f++)
		if (strcmp(f->name, name) == 0 && f->kind == LOG_KIND_WORD)
			return f->text;
	return "";
}

static bool is_plain(const char *text)
{
	const char *c = text;

	while (*c > ' ' && *c <= '~' && *c != '"' && *c != '=')
		c++;
	return c > text && *c == '\0';
}

static json_t *field_json(const struct log_field *field)
{
	json_t *value = field->kind == LOG_KIND_NUMBER ? json_integer((json_int_t)field->number)
	                                               : json_string(field->text);

	return value != NULL ? value : json_string("(not UTF-8)");
}

/* Writes logfmt, which quotes as JSON does. */
static void logfmt_print(FILE *out, const struct log_field *field, const char *space)
{
	json_t *value = field_json(field);

	fprintf(out, "%s%s=", space, field->name);
	if (field->kind == LOG_KIND_WORD && is_plain(field->text))
		fputs(field->text, out);
	else
		json_dumpf(value, out, JSON_ENCODE_ANY);
	json_decref(value);
}

static void event_print(FILE *out, const char *stamp, const struct event *event)
{
	const struct log_field *head =
		LOG_FIELDS(LOG_WORD("time", stamp), LOG_WORD("level", event->level),
	                   LOG_WORD("event", event->name));
	const struct log_field *tail = LOG_FIELDS(LOG_TEXT("text", event->text));
	const struct log_field *const parts[] = {head, event->fields, tail};
	json_t *object = json ? json_object() : NULL;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		for (const struct log_field *f = parts[i]; f != NULL && f->name != NULL; f++) {
			if (f->kind != LOG_KIND_NUMBER && f->text == NULL)
				continue;
			if (json)
				json_object_set_new(object, f->name, field_json(f));
			else
				logfmt_print(out, f, f == head ? "" : " ");
		}
	if (json)
		json_dumpf(object, out, JSON_COMPACT);
	json_decref(object);
	fputc('\n', out);
}

/* Returns the line in allocated memory, or NULL if memory is short. */
static char *line_of(const struct timespec *now, const struct event *event)
{
	char stamp[32], whole[48], *line = NULL;
	size_t bytes;
	FILE *out = open_memstream(&line, &bytes);
	struct tm utc;

	if (out == NULL)
		return NULL;
	gmtime_r(&now->tv_sec, &utc);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &utc);
	snprintf(whole, sizeof(whole), "%s.%03ldZ", stamp, now->tv_nsec / 1000000);
	event_print(out, whole, event);
	if (fclose(out) == 0)
		return line;
	free(line);
	return NULL;
}

/* ---- the queue ---- */

static bool queue_ready(void)
{
	int ends[2];

	if (queue.in >= 0)
		return true;
	if (pipe2(ends, O_CLOEXEC) != 0)
		return false;
	queue.out = ends[0];
	queue.in = ends[1];
	(void)fcntl(queue.in, F_SETFL, O_NONBLOCK);
	(void)fcntl(queue.in, F_SETPIPE_SZ, LOG_QUEUE_BYTES);
	return true;
}

/* A pipe takes a text of up to PIPE_BUF bytes as a whole or not at all. */
static bool queue_put(const struct timespec *now, const struct event *event)
{
	char *text = line_of(now, event);
	size_t bytes = text != NULL ? strlen(text) : PIPE_BUF + 1;
	bool done = bytes <= PIPE_BUF && queue_ready() && write(queue.in, text, bytes) > 0;

	free(text);
	return done;
}

/* Says how many lines were lost, once, when half the queue is free. Until then more may get lost. */
static void say_lost(const struct timespec *now)
{
	const struct event event = {.level = "warn",
	                            .name = "lines_lost",
	                            .fields = LOG_FIELDS(LOG_NUMBER("lines", queue.lost_unsaid)),
	                            .text = "the reader of stderr was too slow"};
	int waiting = 0;

	if (queue.lost_unsaid > 0 && ioctl(queue.in, FIONREAD, &waiting) == 0 &&
	    waiting <= fcntl(queue.in, F_GETPIPE_SZ) / 2 && queue_put(now, &event))
		queue.lost_unsaid = 0;
}

static void write_line(const struct timespec *now, const struct event *event)
{
	say_lost(now);
	if (queue.lost_unsaid == 0 && queue_put(now, event))
		return;
	queue.lost++;
	queue.lost_unsaid++;
}

/* Returns false if no program will ever read it. */
static bool write_whole(int fd, const char *text, size_t bytes)
{
	struct pollfd full = {.fd = fd, .events = POLLOUT};
	size_t done = 0;

	while (done < bytes) {
		ssize_t wrote = write(fd, text + done, bytes - done);

		if (wrote > 0)
			done += (size_t)wrote;
		else if (wrote < 0 && errno == EAGAIN) /* another process made it so */
			(void)poll(&full, 1, -1);
		else if (wrote < 0 && errno != EINTR)
			return false;
	}
	return true;
}

static void *log_run(void *context)
{
	int out = (int)(intptr_t)context;
	char text[PIPE_BUF];
	struct timespec now;
	ssize_t count;
	bool written;

	pthread_setname_np(pthread_self(), "winnow-log");
	(void)privileges_drop();
	while ((count = read(out, text, sizeof(text))) > 0) {
		written = write_whole(queue.fd, text, (size_t)count);
		clock_gettime(CLOCK_REALTIME, &now);
		pthread_mutex_lock(&lock);
		for (ssize_t i = 0; i < count && !written; i++)
			queue.lost += text[i] == '\n';
		say_lost(&now);
		pthread_mutex_unlock(&lock);
	}
	close(out);
	return NULL;
}

int log_open(int fd)
{
	int err = 0;

	pthread_mutex_lock(&lock);
	queue.fd = fd;
	if (!queue_ready())
		err = -errno;
	else
		err = -pthread_create(&queue.writer, NULL, log_run, (void *)(intptr_t)queue.out);
	queue.open = err == 0;
	pthread_mutex_unlock(&lock);
	return err;
}

/* A stuck writer is left alone; it ends with the process. */
void log_close(void)
{
	struct timespec until;

	if (!queue.open)
		return;
	log_flush(true);
	pthread_mutex_lock(&lock);
	close(queue.in); /* the writer then ends when it has written the rest */
	queue.in = -1;
	queue.open = false;
	pthread_mutex_unlock(&lock);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += LOG_END_MS / 1000;
	if (pthread_clockjoin_np(queue.writer, NULL, CLOCK_MONOTONIC, &until) != 0)
		pthread_detach(queue.writer);
}

uint64_t log_lines_lost(void)
{
	uint64_t lost;

	pthread_mutex_lock(&lock);
	lost = queue.lost;
	pthread_mutex_unlock(&lock);
	return lost;
}

/* ---- limits ---- */

static void window_end(struct kind *kind, const struct timespec *now)
{
	const char *code = kind->code[0] != '\0' ? kind->code : NULL;
	const struct event event = {
		.level = "warn",
		.name = "left_out",
		.fields = LOG_FIELDS(LOG_WORD("of", kind->name), LOG_WORD("code", code),
	                             LOG_NUMBER("lines", kind->left_out),
	                             LOG_NUMBER("seconds", (uint64_t)(now->tv_sec - kind->since))),
	};

	if (kind->left_out > 0)
		write_line(now, &event);
	*kind = (struct kind){.name = ""};
}

/* Returns the event's window, an old or a new one, or NULL if there are too many. */
static struct kind *kind_of(const struct event *event, const struct timespec *now)
{
	const char *code = word_of(event, "code");
	struct kind *place = NULL;

	for (uint32_t i = 0; i < KINDS_MAX; i++) {
		struct kind *kind = &kinds[i];

		if (kind->name[0] != '\0' && now->tv_sec - kind->since >= LOG_WINDOW_S)
			window_end(kind, now);
		if (strcmp(kind->name, event->name) == 0 && strcmp(kind->code, code) == 0)
			return kind;
		place = kind->name[0] == '\0' ? kind : place;
	}
	if (place == NULL)
		return NULL;
	snprintf(place->name, sizeof(place->name), "%s", event->name);
	snprintf(place->code, sizeof(place->code), "%s", code);
	place->since = now->tv_sec;
	return place;
}

/* Tells whether an event may be written now. A flood of one `code` does not hide others. */
static bool event_admit(const struct event *event, const struct timespec *now)
{
	struct kind *kind = kind_of(event, now);

	if (kind == NULL || kind->count++ < LOG_BURST)
		return true;
	kind->left_out++;
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

void log_fields(void *unused, const char *level, const char *name, const struct log_field fields[],
                const char *text)
{
	const struct event event = {.level = level, .name = name, .fields = fields, .text = text};
	struct timespec now;

	(void)unused;
	if (level_of(level) < threshold)
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	pthread_mutex_lock(&lock);
	if (level_of(level) == 2 || event_admit(&event, &now))
		write_line(&now, &event);
	pthread_mutex_unlock(&lock);
}

void log_event(const char *level, const char *name, const struct log_field fields[],
               const char *format, ...)
{
	char text[LOG_TEXT_BYTES];
	va_list args;

	if (format != NULL) {
		va_start(args, format);
		vsnprintf(text, sizeof(text), format, args);
		va_end(args);
	}
	log_fields(NULL, level, name, fields, format != NULL ? text : NULL);
}
