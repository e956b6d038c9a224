// SPDX-License-Identifier: BSD-3-Clause
/* test_comm.c - what communicators refuse, and how creating one ends, against an aggregator that the test plays */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/comm/comm_state.h"
#include "tests/unit/unit.h"

#define COUNT 16
#define LIMIT_MS 20000

/* ---- arguments ---- */

static int32_t memory[4 * COUNT];

/* What is wrong with COUNT numbers from `send` to `recv`, in bytes from the memory's begin. */
static const char *wrong(size_t send, size_t recv)
{
	struct allreduce task = {.send = (char *)memory + send,
	                         .recv = (char *)memory + recv,
	                         .count = COUNT,
	                         .dtype = WINNOW_I32,
	                         .reduction = WINNOW_SUM};

	return comm_wrong_argument(&task, NULL);
}

TEST(buffers)
{
	size_t bytes = COUNT * sizeof(memory[0]);

	assert_null(wrong(0, 0));
	assert_null(wrong(0, bytes));
	assert_null(wrong(bytes, 0));
	for (size_t by = 4; by < bytes; by += 4) {
		assert_string_equal(wrong(0, by),
		                    "the buffers overlap: they must be equal or apart");
		assert_string_equal(wrong(by, 0),
		                    "the buffers overlap: they must be equal or apart");
	}
	assert_string_equal(wrong(1, 1), "a buffer is not aligned for its element type");
	assert_string_equal(wrong(0, bytes + 2), "a buffer is not aligned for its element type");
}

TEST(arguments)
{
	struct allreduce good = {.send = memory,
	                         .recv = memory,
	                         .count = COUNT,
	                         .dtype = WINNOW_I32,
	                         .reduction = WINNOW_PROD},
			 task = good;
	struct winnow_options options = {.tag = COMM_TAG_BY_ORDER - 1,
	                                 .block = WIRE_BLOCK_ELEMS_MAX,
	                                 .wire = WINNOW_WIRE_FIXED32};

	assert_null(comm_wrong_argument(&good, &options));
	options.tag++;
	assert_string_equal(comm_wrong_argument(&good, &options), "tags are 1 to 2^63 - 1");
	options = (struct winnow_options){.block = WIRE_BLOCK_ELEMS_MAX + 1};
	assert_string_equal(comm_wrong_argument(&good, &options), "block is above 65536");
	task.recv = NULL;
	assert_string_equal(comm_wrong_argument(&task, NULL), "a buffer is NULL");
	task.send = NULL;
	task.count = 0;
	assert_null(comm_wrong_argument(&task, NULL)); /* of nothing */
	task = good;
	task.reduction = WINNOW_PROD + 1;
	assert_string_equal(comm_wrong_argument(&task, NULL), "unknown operation");
	task = good;
	task.count = (UINT64_C(1) << 48) + 1;
	assert_string_equal(comm_wrong_argument(&task, NULL), "count is above 2^48");
}

/* ---- an aggregator ---- */

struct aggregator {
	int listener;
	uint32_t refusals;     /* connections that are closed after the first line */
	const char *says;      /* to the others; NULL: nothing */
	volatile int *give_up; /* set when it has been answered */
	bool admits;           /* it says so to a newcomer */
	uint32_t loses; /* and then, so many times, that another worker is lost, and who is left */
	uint32_t join_ms; /* the worker's; 0: as usual */
	char heard[8192]; /* the last connection's lines, until it ended */
	pthread_t thread;
};

static bool readable(int fd)
{
	struct pollfd one = {.fd = fd, .events = POLLIN};

	return poll(&one, 1, LIMIT_MS) == 1;
}

static const char hello[] = "{\"type\":\"hello\",\"version\":3,\"software\":\"\"}\n";
static const char lost[] =
	"{\"type\":\"failed\",\"rank\":1,\"code\":\"lost\",\"text\":\"rank 1 is lost\"}\n";

/* Until a line of this type has come; false: it has ended. */
static bool heard(int fd, const char *type)
{
	char line[4096] = "", *end = line;

	while (strstr(line, type) == NULL || end[-1] != '\n')
		if (end == line + sizeof(line) - 1 || !readable(fd) || recv(fd, end++, 1, 0) != 1)
			return false;
	return true;
}

/* One membership after the other, by one connection: none begins. */
static void lose(const struct aggregator *a)
{
	int fd = readable(a->listener) ? accept(a->listener, NULL, NULL) : -1;
	char next[256];

	if (fd < 0)
		return;
	(void)!send(fd, hello, strlen(hello), MSG_NOSIGNAL);
	for (uint32_t i = 1; i <= a->loses && heard(fd, i == 1 ? "\"join\"" : "\"stay\""); i++) {
		snprintf(next, sizeof(next),
		         "{\"type\":\"next\",\"came\":0,"
		         "\"next\":\"default/next.%u\",\"next_rank\":0,\"next_world\":2,"
		         "\"without\":\"0000000000000000\"}\n",
		         i);
		(void)!send(fd, next, strlen(next), MSG_NOSIGNAL);
		if (!heard(fd, "\"join\""))
			break;
		(void)!send(fd, lost, strlen(lost), MSG_NOSIGNAL);
	}
	shutdown(a->listener, SHUT_RDWR);
	close(fd);
}

static void *play(void *context)
{
	struct aggregator *a = context;
	size_t used = 0;
	ssize_t count;
	int fd;

	if (a->loses > 0)
		lose(a);
	for (uint32_t i = 0; i < a->refusals && readable(a->listener); i++) {
		fd = accept(a->listener, NULL, NULL);
		(void)heard(fd, "\"ping\""); /* or its end would be a reset */
		close(fd);
	}
	if (a->says == NULL && a->give_up == NULL)
		return NULL;
	if (!readable(a->listener))
		return NULL;
	fd = accept(a->listener, NULL, NULL);
	if (a->says != NULL)
		(void)!send(fd, a->says, strlen(a->says), MSG_NOSIGNAL);
	if (a->give_up != NULL && readable(fd))
		__atomic_store_n(a->give_up, 1, __ATOMIC_RELAXED);
	while (readable(fd) &&
	       (count = recv(fd, a->heard + used, sizeof(a->heard) - 1 - used, 0)) > 0)
		used += (size_t)count;
	close(fd);
	return NULL;
}

/* Creating a communicator with this aggregator fails like this; returns after how many ms. */
static uint64_t fails(struct aggregator *a, int result, const char *text)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
	                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	struct winnow_config config;
	struct winnow_comm *comm = (struct winnow_comm *)1;
	uint64_t begun_us = clock_us();
	char name[32];

	a->listener = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(a->listener, (struct sockaddr *)&address, size), 0);
	assert_int_equal(getsockname(a->listener, (struct sockaddr *)&address, &size), 0);
	assert_int_equal(listen(a->listener, 8), 0);
	assert_int_equal(pthread_create(&a->thread, NULL, play, a), 0);
	snprintf(name, sizeof(name), "127.0.0.1:%u", ntohs(address.sin_port));
	winnow_config_init(&config);
	config.aggregators = name;
	config.insecure_no_key = 1;
	config.world = 2;
	config.give_up = a->give_up;
	if (a->join_ms != 0)
		config.join_timeout_ms = a->join_ms;
	assert_int_equal((a->admits ? winnow_comm_enter : winnow_comm_create)(&config, &comm),
	                 result);
	assert_null(comm);
	if (strstr(winnow_last_error(), text) == NULL)
		fail_msg("'%s' does not say '%s'", winnow_last_error(), text);
	assert_null(strchr(winnow_last_error(), '\n'));
	shutdown(a->listener, SHUT_RDWR);
	assert_int_equal(pthread_join(a->thread, NULL), 0);
	close(a->listener);
	return (clock_us() - begun_us) / 1000;
}

/* Once may be for want of room; the second end is the end. */
TEST(closed)
{
	struct aggregator twice = {.refusals = 2};

	assert_true(fails(&twice, WINNOW_ERR_LOST, "connection closed") >=
	            COMM_CONNECT_AGAIN_US / 1000);
}

TEST(other_protocol)
{
	struct aggregator http = {.says = "HTTP/1.1 400 Bad Request\r\n\r\n"};
	struct aggregator old = {.says = "{\"type\":\"hello\",\"version\":2}\n"};

	fails(&http, WINNOW_ERR_PROTOCOL, "it does not speak Winnow's protocol");
	fails(&old, WINNOW_ERR_REFUSED,
	      "it speaks version 2 of the protocol, this worker speaks 3");
}

/* No membership that could be: it is not tried. */
TEST(next)
{
	static const struct {
		const char *job;
		unsigned rank, world, without;
	} nexts[] = {{"default", 0, 2, ~0u}, {"default", 0, 2, 1},     {"default", 2, 2, 0},
	             {"default", 0, 0, 0},   {"default", 0, 70000, 0}, {"defaults", 0, 2, 0}};

	for (size_t i = 0; i < sizeof(nexts) / sizeof(nexts[0]); i++) {
		char lines[1024];
		struct aggregator admits = {.says = lines, .admits = true};

		snprintf(lines, sizeof(lines),
		         "%s{\"type\":\"next\",\"came\":1,\"text\":\"\","
		         "\"next\":\"%s/next.1\",\"next_rank\":%u,\"next_world\":%u,"
		         "\"without\":\"%016x\"}\n",
		         hello, nexts[i].job, nexts[i].rank, nexts[i].world, nexts[i].without);
		fails(&admits, WINNOW_ERR_PROTOCOL, "how the job continues, which makes no sense");
	}
}

/* Others are lost again and again: so it would go on for ever, and yet it ends in time. */
TEST(lost_for_ever)
{
	struct aggregator loses = {.loses = UINT32_MAX, .admits = true, .join_ms = 500};
	uint64_t ms;

	/* "no other membership has begun in time", or on a busy machine "nobody has said in time who is left". */
	ms = fails(&loses, WINNOW_ERR_TIMEOUT, " in time");
	assert_true(ms >= 1000 && ms < LIMIT_MS);
}

/* The decider is gone, and does not come back in the time of joining. */
TEST(decider_lost)
{
	struct aggregator goes = {.loses = 1, .admits = true, .join_ms = 500};

	(void)fails(&goes, WINNOW_ERR_MEMBERS, "nobody says who is left: aggregator 127.0.0.1:");
}

/* The caller goes away: at once, and the aggregator is told, so that its place is free. */
TEST(given_up)
{
	volatile int give_up = 0;
	struct aggregator waits = {.says = hello, .give_up = &give_up};

	assert_true(fails(&waits, WINNOW_ERR_ABORTED, "given up before all workers had joined") <
	            LIMIT_MS / 2);
	assert_non_null(strstr(waits.heard, "\"type\":\"abort\""));
	assert_non_null(strstr(waits.heard, "it gave up"));
}

static void *mask_tell(void *mask)
{
	pthread_sigmask(SIG_SETMASK, NULL, mask);
	return NULL;
}

/* Signals are for the program's own threads: Ctrl-C must wake its main thread. */
TEST(signals)
{
	static const int some[] = {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGALRM, SIGPIPE};
	sigset_t before, after, in_thread;
	pthread_t thread;
	struct why why;

	pthread_sigmask(SIG_SETMASK, NULL, &before);
	assert_int_equal(comm_thread_start(&thread, mask_tell, &in_thread, &why), WINNOW_OK);
	assert_int_equal(pthread_join(thread, NULL), 0);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
		assert_int_equal(sigismember(&in_thread, some[i]), 1);
		assert_int_equal(sigismember(&after, some[i]), sigismember(&before, some[i]));
	}
}
