// SPDX-License-Identifier: BSD-3-Clause
/* test_log.c - nobody who logs waits for stderr; what is lost is counted and said; the last lines get out, or the end does not wait */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "aggregator/log.h"
#include "tests/unit/unit.h"

#define LINES 20000 /* more than the queue takes */

static int ends[2]; /* of the pipe that stands for stderr */
static char text[4u << 20];
static size_t used;

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void begin(void)
{
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(fcntl(ends[1], F_SETPIPE_SZ, 4096), 4096);
	used = 0;
	assert_int_equal(log_open(ends[1]), 0);
}

/* False: nothing has come for so long. */
static bool read_some(int wait_ms, size_t bytes)
{
	struct pollfd fd = {.fd = ends[0], .events = POLLIN};
	ssize_t count;

	if (poll(&fd, 1, wait_ms) != 1)
		return false;
	assert_true(used + bytes < sizeof(text));
	count = read(ends[0], text + used, bytes);
	assert_true(count > 0);
	used += (size_t)count;
	text[used] = '\0';
	return true;
}

/* Read until `what` has come. */
static void read_until(const char *what)
{
	while (used == 0 || strstr(text, what) == NULL)
		if (!read_some(20000, 65536))
			fail_msg("'%s' does not come", what);
}

static void end(void)
{
	close(ends[0]);
	close(ends[1]);
}

/* Errors are not held back as a flood of one event. */
static void flood(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		log_event("error", "flood", LOG_FIELDS(LOG_NUMBER("number", i)),
		          "of some length, so that not all fit");
}

static uint32_t lines_with(const char *what)
{
	uint32_t count = 0;

	for (const char *at = text; (at = strstr(at, what)) != NULL; at++)
		count++;
	return count;
}

TEST(in_order)
{
	log_event("info", "early", NULL, NULL); /* before anything writes */
	begin();
	log_event("info", "one", LOG_FIELDS(LOG_WORD("name", "value")), NULL);
	log_fields(NULL, "warn", "two", NULL, NULL);
	read_until("event=two\n");
	assert_true(strstr(text, "level=info event=early\n") <
	            strstr(text, "level=info event=one name=value\n"));
	assert_int_equal(lines_with("\n"), 3);
	assert_true(strncmp(text, "time=20", 7) == 0);
	log_event("info", "last", NULL, NULL);
	log_close();
	read_until("event=last\n");
	assert_int_equal(log_lines_lost(), 0);
	end();
}

/* A pipe that nobody reads: no call waits, no line is lost without being counted, and it is said once. */
TEST(full)
{
	uint64_t start_ms = now_ms(), lost;
	char said[64];

	begin();
	flood(LINES);
	assert_true(now_ms() - start_ms < 10000);
	lost = log_lines_lost();
	assert_true(lost > 0 && lost < LINES);
	read_until("event=lines_lost");
	log_event("info", "after", NULL, NULL);
	read_until("event=after\n");
	assert_int_equal(lines_with("event=lines_lost"), 1);
	assert_int_equal(log_lines_lost(), lost);
	assert_int_equal(lines_with("event=flood") + lost, LINES);
	snprintf(said, sizeof(said), "event=lines_lost lines=%llu ", (unsigned long long)lost);
	assert_int_equal(lines_with(said), 1);
	log_close();
	end();
}

/* A reader that is too slow all the time: there are few gaps, and large ones. */
TEST(slow)
{
	uint64_t before = log_lines_lost();

	begin();
	while (log_lines_lost() == before)
		flood(100);
	for (uint32_t i = 0; i < 400; i++) {
		flood(50);
		read_some(10, 4096);
	}
	assert_in_range(lines_with("event=lines_lost"), 1, used / (LOG_QUEUE_BYTES / 2) + 1);
	do {
		log_event("error", "after", NULL, NULL);
		read_some(10, 4096);
	} while (strstr(text, "event=after") == NULL);
	log_close();
	end();
}

/* The reader is gone: lines are lost, and nothing else happens. */
TEST(gone)
{
	uint64_t lost = log_lines_lost();

	begin();
	close(ends[0]);
	flood(10);
	log_close();
	assert_int_equal(log_lines_lost(), lost + 10);
	close(ends[1]);
}

/* stderr's description may be another program's too, and that one may have made it non-blocking. */
TEST(not_blocking)
{
	uint64_t lost = log_lines_lost();

	begin();
	assert_int_equal(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
	flood(200);
	log_event("info", "after", NULL, NULL);
	read_until("event=after\n");
	assert_int_equal(lines_with("event=flood"), 200);
	assert_int_equal(log_lines_lost(), lost);
	log_close();
	end();
}

/* What is queued at the end gets out if somebody reads; if nobody does, the end comes all the same. */
TEST(end)
{
	uint64_t start_ms;
	int status;
	pid_t child;

#ifdef __SANITIZE_THREAD__
	skip(); /* it knows no threads of a child */
#endif
	for (int read_it = 0; read_it < 2; read_it++) {
		assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
		used = 0;
		start_ms = now_ms();
		child = fork();
		if (child == 0) {
			alarm(30);
			close(ends[0]);
			if (log_open(ends[1]) != 0)
				_exit(1);
			flood(1500);
			log_event("info", "stopped", NULL, NULL);
			log_close();
			_exit(7);
		}
		close(ends[1]);
		if (read_it)
			read_until("event=stopped\n");
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
		assert_true(now_ms() - start_ms < LOG_END_MS + 5000);
		if (!read_it)
			assert_true(now_ms() - start_ms >= LOG_END_MS - 100);
		close(ends[0]);
	}
}

/* Of one event a hundred lines, then how many were left out; others are not held back. */
TEST(bursts)
{
	begin();
	for (uint32_t i = 0; i < LOG_BURST + 50; i++) {
		log_fields(NULL, "warn", "refused",
		           LOG_FIELDS(LOG_NUMBER("number", i), LOG_WORD("code", "timeout")), "");
		if (i % 20 == 0) {
			log_event("info", "job_started", LOG_FIELDS(LOG_NUMBER("number", i)), NULL);
			read_until("event=job_started");
		}
	}
	log_event("warn", "refused", LOG_FIELDS(LOG_NUMBER("number", 7), LOG_WORD("code", "key")),
	          " code=timeout");
	log_event("warn", "said", NULL, " code=whatever");
	log_flush(false); /* its time has not come */
	log_event("error", "other", NULL, NULL);
	read_until("event=other\n");
	assert_int_equal(lines_with("event=left_out"), 0);
	log_close();
	read_until("event=left_out of=refused code=timeout lines=50 ");
	assert_int_equal(lines_with("code=timeout text=\"\""), LOG_BURST);
	assert_int_equal(lines_with("code=key "), 1);
	assert_int_equal(lines_with("event=said "), 1);
	assert_int_equal(lines_with("event=job_started "), 8);
	end();
}

TEST(levels)
{
	log_set(1, LOG_LOGFMT);
	begin();
	log_event("info", "low", NULL, NULL);
	log_event("warn", "high", NULL, NULL);
	log_close();
	read_until("event=high\n");
	assert_int_equal(lines_with("\n"), 1);
	end();
	log_set(0, LOG_LOGFMT);
}

/* What values contain forges no field, and a JSON reader gets it back as it was. */
TEST(quoting)
{
	static const char odd[] = "he says \"no\" code=x\n\\";
	static const struct {
		enum log_format format;
		const char *want;
	} cases[] = {
		{LOG_LOGFMT,
	         " event=e word=\"he says \\\"no\\\" code=x\\n\\\\\" empty=\"\" plain=a/b:1 "
	         "text=\"<he says \\\"no\\\" code=x\\n\\\\>\"\n"},
		{LOG_JSON,
	         ",\"event\":\"e\",\"word\":\"he says \\\"no\\\" code=x\\n\\\\\",\"empty\":\"\","
	         "\"plain\":\"a/b:1\",\"text\":\"<he says \\\"no\\\" code=x\\n\\\\>\"}\n"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		log_set(0, cases[i].format);
		begin();
		log_event("info", "e",
		          LOG_FIELDS(LOG_WORD("word", odd), LOG_WORD("empty", ""),
		                     LOG_WORD("absent", NULL), LOG_WORD("plain", "a/b:1")),
		          "<%s>", odd);
		log_close();
		read_until("\n");
		if (strstr(text, cases[i].want) == NULL)
			fail_msg("want %s: %s", cases[i].want, text);
		end();
	}
	log_set(0, LOG_LOGFMT);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	return unit_run(NULL, NULL);
}
