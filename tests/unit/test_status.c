// SPDX-License-Identifier: BSD-3-Clause
/* test_status.c - asking servers that answer garbage, nothing, too much or half; and what is shown */

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bitmap/net/clock.h"
#include "client/cli/status/status.h"
#include "tests/unit/unit.h"

#define OK_HEAD "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
#define WELL                                                                                       \
	"{\"version\":\"0.1\",\"datapath\":\"udp\",\"isa\":\"avx2\",\"uptime_s\":%s,"              \
	"\"jobs\":[{\"name\":\"%s\",\"state\":\"running\",\"world\":2,\"members\":2,"              \
	"\"operations\":%s,\"received_bytes\":%s}]}"

/* A server of one connection on a port of its own. */
struct server {
	int listener;
	char address[32];
	const char *says;     /* in answer to a request */
	const char *and_says; /* again and again, until the other end has enough; NULL: no */
	bool holds;           /* the connection open, until the other end closes it */
	pthread_t thread;
};

static struct status_targets targets;

static void *serve(void *context)
{
	struct server *server = context;
	int fd = accept(server->listener, NULL, NULL);
	char request[2048];

	if (fd < 0)
		return NULL;
	(void)!read(fd, request, sizeof(request));
	(void)!write(fd, server->says, strlen(server->says));
	while (server->and_says != NULL &&
	       write(fd, server->and_says, strlen(server->and_says)) > 0)
		;
	while (server->holds && read(fd, request, sizeof(request)) > 0)
		;
	close(fd);
	return NULL;
}

static void start(struct server *server)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(any);

	server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(server->listener, (struct sockaddr *)&any, sizeof(any)), 0);
	assert_int_equal(listen(server->listener, 4), 0);
	assert_int_equal(getsockname(server->listener, (struct sockaddr *)&any, &size), 0);
	snprintf(server->address, sizeof(server->address), "127.0.0.1:%u", ntohs(any.sin_port));
	assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
}

static void stop(struct server *server)
{
	pthread_join(server->thread, NULL);
	close(server->listener);
}

static enum status_health ask_all(uint64_t timeout_us)
{
	targets.timeout_us = timeout_us;
	targets.late_s = 5;
	return status_ask(&targets);
}

/* Ask one server, once. */
static void expect_unreachable(struct server server, const char *pattern)
{
	const struct status_target *target = &targets.list[0];
	const uint64_t limit_us = server.holds ? 1000000 : 10000000, start_us = clock_us();
	const char *address = server.address;

	start(&server);
	status_targets_free(&targets);
	assert_int_equal(status_targets_read(&address, 1, NULL, &targets), 0);
	assert_int_equal(ask_all(limit_us), STATUS_UNREACHABLE);
	assert_in_range(clock_us() - start_us, 0, limit_us + 2000000);
	stop(&server);
	assert_null(target->report);
	if (strstr(target->why.text, pattern) == NULL)
		fail_msg("'%s' lacks '%s'", target->why.text, pattern);
	for (const char *c = target->why.text; *c != '\0'; c++)
		assert_true(*c >= ' ' && *c <= '~');
}

TEST(strangers)
{
	static const struct {
		const char *pattern;
		struct server server;
	} cases[] = {
		{"HTTP", {.says = "SSH-2.0-OpenSSH_9.2\r\n"}},
		{"it closed the connection without an answer", {.says = ""}},
		{"no answer", {.says = "", .holds = true}},
		{"no answer", {.says = OK_HEAD, .holds = true}},
		{"the answer", {.says = OK_HEAD "Content-Length: 100\r\n\r\n{\"ver"}},
		{"not winnowd", {.says = OK_HEAD "Content-Length: 2\r\n\r\n{}"}},
		{"no JSON", {.says = OK_HEAD "Content-Length: 5\r\n\r\n\033[2Jx"}},
		{"", {.says = OK_HEAD "Content-Length: -1\r\n\r\n{}"}},
		{"", {.says = OK_HEAD "Content-Length: 99999999999999\r\n\r\n{}"}},
		{"HTTP 404", {.says = "HTTP/1.1 404 Not\033 Found\r\nContent-Length: 0\r\n\r\n"}},
		{"HTTP 302", {.says = "HTTP/1.1 302 Found\r\nLocation: http://a:1/\r\n\r\n"}},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		expect_unreachable(cases[i].server, cases[i].pattern);
}

/* So often that sixteen megabytes of it are few writes. */
static const char *often(const char *what)
{
	static char text[65536];
	size_t length = strlen(what);

	memset(text, 0, sizeof(text));
	for (size_t at = 0; at + length < sizeof(text); at += length)
		memcpy(text + at, what, length);
	return text;
}

/* Without an end: of the body, of the head, of a chunked body. */
TEST(endless)
{
	expect_unreachable((struct server){.says = OK_HEAD "\r\n", .and_says = often("[")},
	                   "too long");
	expect_unreachable((struct server){.says = OK_HEAD, .and_says = often("X-More: more\r\n")},
	                   "HTTP");
	expect_unreachable((struct server){.says = OK_HEAD "Transfer-Encoding: chunked\r\n\r\n",
	                                   .and_says = often("10\r\n0123456789abcdef\r\n")},
	                   "");
}

TEST(nobody)
{
	const char *address = "127.0.0.1:1";

	status_targets_free(&targets);
	assert_int_equal(status_targets_read(&address, 1, NULL, &targets), 0);
	assert_int_equal(ask_all(500000), STATUS_UNREACHABLE);
	assert_non_null(strstr(targets.list[0].why.text, "cannot connect"));
}

TEST(addresses)
{
	const char *const wrong[] = {"",     ":1",   "a:",   "a:0",  "a:65536",
	                             "a:1x", "a:1,", ",a:1", "a:-1", "a:1,b:2:x",
	                             "a: 1", "[::1", "[x]",  "a b:"};
	const char *const whole[][2] = {{"x", "x:9555"},
	                                {"10.0.0.1", "10.0.0.1:9555"},
	                                {"::1", "[::1]:9555"},
	                                {"[fd00::1]", "[fd00::1]:9555"}};
	const char *operands[] = {"a:1,b:2", "c:3"};
	FILE *errors = stderr;

	status_targets_free(&targets);
	stderr = fopen("/dev/null", "we");
	assert_non_null(stderr);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (status_targets_read(&wrong[i], 1, NULL, &targets) != 2)
			fail_msg("taken: '%s'", wrong[i]);
	fclose(stderr);
	stderr = errors;
	for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
		assert_int_equal(status_targets_read(whole[i], 1, NULL, &targets), 0);
		assert_string_equal(targets.list[0].address, whole[i][1]);
	}
	assert_int_equal(status_targets_read(operands, 2, "no:1", &targets), 0);
	assert_int_equal(targets.count, 3);
	assert_string_equal(targets.list[1].address, "b:2");
	assert_int_equal(status_targets_read(operands, 0, "d:4", &targets), 0);
	assert_int_equal(targets.count, 1);
	assert_string_equal(targets.list[0].address, "d:4");
	assert_int_equal(status_targets_read(operands, 0, "auto", &targets), 0);
	assert_string_equal(targets.list[0].address, "127.0.0.1:9555");
}

/* ---- what is shown ---- */

static const char *shown_as(const struct status_view *view)
{
	static char text[8192];
	char *memory = NULL;
	size_t bytes;
	FILE *out = open_memstream(&memory, &bytes);

	assert_non_null(out);
	status_show(&targets, view, out);
	fclose(out);
	assert_true(bytes < sizeof(text));
	memcpy(text, memory, bytes + 1);
	free(memory);
	return text;
}

#define shown() shown_as(&(struct status_view){0})
#define shown_workers() shown_as(&(struct status_view){.workers = true})

/* The one report that is shown from now on. */
static void report_is(const char *body)
{
	struct why why;

	status_targets_free(&targets);
	memset(&targets, 0, sizeof(targets));
	targets.count = 1;
	targets.list[0].report = report_parse(body, strlen(body), &why);
	assert_non_null(targets.list[0].report);
}

static void answer_again(const char *uptime_s, const char *job, const char *operations,
                         const char *bytes)
{
	static char body[1024], text[2048];
	struct server server = {.says = text};

	snprintf(body, sizeof(body), WELL, uptime_s, job, operations, bytes);
	snprintf(text, sizeof(text), OK_HEAD "Content-Length: %zu\r\n\r\n%s", strlen(body), body);
	start(&server);
	if (targets.count == 0) {
		const char *address = server.address;

		assert_int_equal(status_targets_read(&address, 1, NULL, &targets), 0);
	}
	strcpy(targets.list[0].address, server.address);
	assert_int_equal(ask_all(2000000), STATUS_HEALTHY);
	stop(&server);
}

/* Asked again, what was heard before is gone. */
TEST(again)
{
	status_targets_free(&targets);
	memset(&targets, 0, sizeof(targets));
	answer_again("10", "j", "100", "1000000");
	assert_non_null(strstr(shown(), "2/2  100  1.00M"));
	answer_again("12", "k", "300", "5000000");
	assert_non_null(strstr(shown(), "k    running      2/2  300  5.00M"));
	assert_null(strstr(shown(), "1.00M"));
}

/* ---- one report ---- */

#define JOB                                                                                        \
	"{\"name\":\"j\",\"state\":\"running\",\"world\":4,\"members\":4,\"results\":%s,"          \
	"\"result_resends\":%s,\"slots\":{\"used\":7,\"total\":64},\"density\":0.25,\"union\":0."  \
	"5,\"workers\":[{},{},{},{}],"                                                             \
	"\"fast\":%s,\"multicast\":true}"

/* As it is shown; the same pointer, soon something else. */
static const char *shown_of(const char *root_fields, const char *results, const char *resends,
                            const char *fast)
{
	char body[2048], job[512];

	snprintf(job, sizeof(job), JOB, results, resends, fast);
	snprintf(body, sizeof(body), "{\"version\":\"0.1\",\"uptime_s\":1,%s,\"jobs\":[%s]}",
	         root_fields, job);
	report_is(body);
	return shown();
}

static void expect_shown(const char *text, const char *what)
{
	if (text == NULL || strstr(text, what) == NULL)
		fail_msg("no '%s' in: %s", what, text != NULL ? text : "nothing");
}

/* Results sent again, of those that went to each worker; and the job's own data path. */
TEST(loss)
{
	static const struct {
		const char *path, *results, *resends, *fast, *shown;
	} cases[] = {
		{"\"datapath\":\"udp\"", "100", "6", "false", " 1.50%    -  -     udp+mcast "},
		{"\"datapath\":\"udp\"", "100", "0", "false", " 0.00%    -  -     udp+mcast "},
		{"\"datapath\":\"udp\"", "0", "6", "false", " -    -  -     udp+mcast "},
		{"\"datapath\":\"xdp\"", "0", "0", "true", " -    -  -     xdp+mcast "},
		{"\"datapath\":\"xdp\"", "0", "0", "false", " -    -  -     udp+mcast "},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		expect_shown(
			shown_of(cases[i].path, cases[i].results, cases[i].resends, cases[i].fast),
			cases[i].shown);
	expect_shown(shown(), "  7/64  0.250  0.500 ");
	/* A site gets a result once; workers at other sites get none here. */
	report_is("{\"version\":\"0.1\",\"uptime_s\":1,\"datapath\":\"udp\","
	          "\"jobs\":[{\"name\":\"j\",\"state\":\"running\",\"world\":5,"
	          "\"members\":4,\"results\":100,\"result_resends\":6,"
	          "\"workers\":[{\"site\":\"a\"},{\"site\":\"a\"},{\"site\":\"b\"},{},"
	          "{\"state\":\"elsewhere\"}]}]}");
	expect_shown(shown(), " 2.00%    -  -     udp ");
}

/* What holds a job back: who says so most, and for whom all wait; of each worker its path. */
TEST(paths)
{
	static const char body[] =
		"{\"version\":\"0.1\",\"uptime_s\":1,\"jobs\":[{\"name\":\"j\",\"state\":"
		"\"running\","
		"\"world\":3,\"members\":3,\"workers\":["
		"{\"rank\":0,\"state\":\"ready\",\"host\":\"a\",\"address\":\"b\",\"silent_s\":0,"
		"\"rtt_s\":0.00024,\"rtt_least_s\":0.00005,\"window\":17,\"last_s\":1.25,"
		"\"lately\":{\"held_window\":0.2,\"held_credit\":%s,\"out_lost\":0.015,"
		"\"in_lost\":0,\"out_marked\":0,\"in_marked\":0.5}},"
		"{\"rank\":1,\"rtt_s\":0.0031,\"last_s\":7,\"lately\":null},"
		"{\"rank\":2,\"rtt_s\":1.2,\"last_s\":2,\"lately\":{\"held_window\":%s,"
		"\"held_credit\":0.1}}]}]}";
	static const struct {
		const char *credit, *window, *held, *first, *second;
	} turns[] = {
		{"0.4", "0.63", "1.2s  window 63%: 2", "credit 40%  1.2s", "-           7.0s"},
		{"0.4", "0.3", "1.2s  credit 40%: 1", "credit 40%  1.2s", "-           7.0s"},
		{"0", "1.7", "1.2s  window 100%: 2", "window 20%   1.2s", "-            7.0s"}};
	char text[2048];

	for (int turn = 0; turn < 3; turn++) {
		snprintf(text, sizeof(text), body, turns[turn].credit, turns[turn].window);
		report_is(text);
		expect_shown(shown(), turns[turn].held);
		snprintf(text, sizeof(text),
		         "  240us   50us      17  1.5%%/0.0%%  0.0%%/50.0%%  %s",
		         turns[turn].first);
		expect_shown(shown_workers(), text);
		snprintf(text, sizeof(text), "  3.1ms      -       -          -           -  %s",
		         turns[turn].second);
		expect_shown(shown_workers(), text);
	}
}

/* What a person should know besides, and nothing when there is nothing. */
TEST(notes)
{
	const char *text = shown_of(
		"\"datapath\":\"udp\",\"memory_reserved_bytes\":4240000,"
		"\"memory_limit_bytes\":14300000,\"log_lines_lost\":123,"
		"\"packets\":{\"send_errors\":5,\"unsent\":6},"
		"\"drops\":{\"short\":9,\"stale\":0},"
		"\"last_failure\":{\"job\":\"old\",\"text\":\"rank 1 is lost\",\"age_s\":61}",
		"0", "0", "false");

	expect_shown(text, "4.24MB of 14.3MB for slots");
	expect_shown(text, "  log: 123 lines are lost");
	expect_shown(text, "  not sent: 5 datagrams refused by the system, 6 dropped");
	expect_shown(text, "  dropped: short 9\n");
	expect_shown(text, "  last failure, 1m01s ago: job old: rank 1 is lost\n");
	text = shown_of("\"datapath\":\"udp\"", "0", "0", "false");
	assert_null(strstr(text, "log:"));
	assert_null(strstr(text, "not sent"));
	assert_null(strstr(text, "dropped"));
	assert_null(strstr(text, "last failure"));
}

static int end(void **state)
{
	status_targets_free(&targets);
	return 0;
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	return unit_run(NULL, end);
}
