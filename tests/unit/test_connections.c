// SPDX-License-Identifier: BSD-3-Clause
/* test_connections.c - lines in and out, whose turn it is, and a process without descriptors */

#include "tests/unit/test_connections.h"

#include <sys/syscall.h>

#include "aggregator/log.h"

/* ---- the log ---- */

static uint32_t shortages_said;
static char shortage[128]; /* what was said last */

void log_event(const char *level, const char *name, const struct log_field fields[],
               const char *format, ...)
{
	va_list args;

	if (strcmp(name, "no_descriptors") != 0)
		return;
	shortages_said++;
	va_start(args, format);
	vsnprintf(shortage, sizeof(shortage), format, args);
	va_end(args);
}

/* ---- a system that may be short of something else than descriptors ---- */

static int accept_errno; /* 0: it is not */

int accept4(int fd, __SOCKADDR_ARG from, socklen_t *size, int flags)
{
	if (accept_errno == 0)
		return (int)syscall(SYS_accept4, fd, from.__sockaddr__, size, flags);
	errno = accept_errno;
	return -1;
}

/* ---- lines ---- */

TEST_BETWEEN(lines, begin, end)
{
	int fd = dial_peer(9);
	char text[16];
	size_t used = 0;

	assert_int_equal(net_ip_number(&peers[0].from.ip), 0x7f000009);
	assert_int_equal(net_ip_number(&peers[0].local), 0x7f000001);
	say_text(fd, "on");
	turns(20);
	assert_int_equal(peers[0].lines, 0);
	say_text(fd, "e\ntwo\nthr");
	UNTIL(peers[0].lines == 2);
	assert_string_equal(peers[0].line, "two");
	say_text(fd, "ee\n");
	UNTIL(peers[0].lines == 3);
	assert_string_equal(peers[0].line, "three");
	UNTIL(hear(fd, text, sizeof(text), &used) < 0 && used == 6);
	close(fd);
	UNTIL(peers[0].gone);
	assert_string_equal(peers[0].reason, "connection closed");
	UNTIL(connections_none(&connections));
}

/* What jobs.c says last arrives; what the peer says after that is nobody's. */
TEST_BETWEEN(last_line, begin, end)
{
	int fd = dial_peer(1), other = dial_peer(1);

	say_text(fd, "first\nrefuse me\nand more\n");
	expect_all(fd, "hello\nno\n");
	assert_int_equal(peers[0].lines, 2);
	assert_false(peers[0].gone);
	say_text(other, "still here\n");
	UNTIL(peers[1].lines == 1);
	close(other);
	UNTIL(connections_none(&connections));
}

TEST_BETWEEN(garbage, begin, end)
{
	char text[9000];
	int fd = dial_peer(1);

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	say_text(fd, text);
	UNTIL(peers[0].garbage);
	assert_int_equal(peers[0].lines, 0);
	UNTIL(connections_none(&connections));
	close(fd);
}

static void count_queued(uv_handle_t *handle, void *queued)
{
	if (handle->type == UV_TCP)
		*(size_t *)queued += uv_stream_get_write_queue_size((uv_stream_t *)handle);
}

#define LONG_BYTES 8192

/* To a peer that does not read: a line, which the kernel takes as long as it can. Returns what all have not taken. */
static size_t send_long(struct jobs_peer *peer)
{
	static char line[LONG_BYTES];
	size_t queued = 0;

	memset(line, 'x', sizeof(line) - 2);
	line[sizeof(line) - 2] = '\n';
	connections_send(NULL, peer, line);
	uv_walk(&loop, count_queued, &queued);
	return queued;
}

/* Until the kernel takes no more, then up to our limit, and no further. */
TEST_BETWEEN(does_not_read, begin, end)
{
	int deaf = dial_peer(1), other = dial_peer(1);
	size_t queued, most = 0;

	for (uint32_t i = 0; i < 4000; i++) { /* 32 MB */
		queued = send_long(&peers[0]);
		most = queued > most ? queued : most;
		assert_false(peers[0].gone); /* not before the call has returned */
	}
	assert_in_range(most, CONNECTIONS_QUEUE_BYTES - LONG_BYTES, CONNECTIONS_QUEUE_BYTES);
	UNTIL(peers[0].gone);
	assert_string_equal(peers[0].reason, "it does not read what it is sent");
	/* The others do not notice. */
	connections_send(NULL, &peers[1], "fine\n");
	say_text(other, "refuse me\n");
	expect_all(other, "hello\nfine\nno\n");
	UNTIL(connections_none(&connections));
	close(deaf);
}

/* A peer that does not take its last lines is given up, but not at once. */
TEST_BETWEEN(linger, begin, end)
{
	int fd = dial_peer(1);
	uint64_t shut_us;

	while (send_long(&peers[0]) < 2 * LONG_BYTES)
		;
	peers[0].refused = true;
	shut_us = uv_hrtime() / 1000;
	connections_shut(NULL, &peers[0]);
	turns(20);
	connections_tick(&connections, shut_us + CONNECTIONS_LINGER_US / 2);
	turns(20);
	assert_false(connections_none(&connections));
	connections_tick(&connections, uv_hrtime() / 1000 + CONNECTIONS_LINGER_US + 1);
	assert_true(connections_none(&connections));
	close(fd);
}

/* ---- time ---- */

/* As many lines as the kernel takes. Returns how many. */
static uint32_t say_many(int fd, const char *line)
{
	uint32_t said = 0;
	ssize_t count;

	while ((count = send(fd, line, strlen(line), MSG_NOSIGNAL)) == (ssize_t)strlen(line))
		said++;
	assert_true(said > 100);
	return said;
}

/* However long its lines are, of one that has sent much a turn reads one buffer. */
TEST_BETWEEN(long_lines, begin, end)
{
	static char line[4001];
	int fd = dial_peer(1);
	uint32_t most = 0;

	memset(line, 'x', sizeof(line) - 2);
	line[sizeof(line) - 2] = '\n';
	for (uint32_t i = 0; i < 25; i++) /* 100 KB lie in the socket */
		say_text(fd, line);
	for (uint32_t before = 0; peers[0].lines < 25; before = peers[0].lines) {
		turn();
		most = peers[0].lines - before > most ? peers[0].lines - before : most;
	}
	assert_in_range(most, 1, 3);
	close(fd);
}

/* Of one that says much at once a turn hears a few lines; in the end all are heard, in order. */
TEST_BETWEEN(turns, begin, end)
{
	int fd = dial_peer(1), other = dial_peer(1);
	uint32_t most = 0;
	char text[32];

	for (uint32_t i = 0; i < 5000; i++) {
		snprintf(text, sizeof(text), "number %u\n", i);
		say_text(fd, text);
	}
	say_text(other, "hello\n");
	for (uint32_t before = 0; peers[0].lines < 5000; before = peers[0].lines) {
		turn();
		most = peers[0].lines - before > most ? peers[0].lines - before : most;
		if (peers[0].lines > CONNECTIONS_TURN_LINES)
			assert_int_equal(peers[1].lines, 1);
	}
	/* A read, and one turn of those that wait. */
	assert_in_range(most, 1, 2000);
	close(fd);
	UNTIL(peers[0].gone);
	say_text(other, "refuse me\n");
	expect_all(other, "hello\nno\n");
}

static uint32_t lines_of(uint32_t first, uint32_t end)
{
	uint32_t lines = 0;

	for (uint32_t i = first; i < end; i++)
		lines += peers[i].lines;
	return lines;
}

/*
 * Three connections of an owner flood us with lines that cost much. Others are heard at once; the loop
 * works no longer for the flood than its share of the time; and a fourth one of this owner has its turn.
 */
TEST_BETWEEN(flood, begin, end)
{
	const uint32_t at_once = BUDGET_MOST_US / WORK_US;
	int floods[3], calm, fourth;
	uint32_t before;

	for (uint32_t i = 0; i < 3; i++)
		floods[i] = dial_peer(1);
	calm = dial_peer(2);
	fourth = dial_peer(1);
	still_ns = uv_hrtime();
	for (uint32_t i = 0; i < 3; i++)
		say_many(floods[i], "work\n");
	/* What it may have at once, and what the last one had too much. */
	UNTIL(lines_of(0, 3) >= at_once - 1);
	turns(100);
	before = lines_of(0, 3);
	assert_in_range(before, at_once - 1, at_once + CONNECTIONS_TURN_LINES);
	say_text(fourth, "me too\n");
	for (uint32_t i = 1; i <= 20; i++) {
		say_text(calm, "one\n");
		turns(5);
		assert_int_equal(peers[3].lines, i);
	}
	assert_int_equal(peers[4].lines, 0);
	assert_int_equal(lines_of(0, 3), before);
	/* Two seconds, in steps: a fifth of that is theirs, and all have some of it. */
	for (uint32_t i = 0; i < 50; i++) {
		still_ns += 40000000;
		turns(40);
	}
	turns(100);
	assert_in_range(lines_of(0, 3) - before, 2000000 / BUDGET_SHARE / WORK_US / 2,
	                2000000 / BUDGET_SHARE / WORK_US + CONNECTIONS_TURN_LINES);
	for (uint32_t i = 0; i < 3; i++)
		assert_true(peers[i].lines > at_once / 3 + 50);
	assert_int_equal(peers[4].lines, 1);
	for (uint32_t i = 0; i < 3; i++)
		close(floods[i]);
	close(calm);
	close(fourth);
}

/* One that has a key has an account of its own, whatever its address. */
TEST_BETWEEN(owners, begin, end)
{
	int flood = dial_peer(1), calm = dial_peer(1);

	still_ns = uv_hrtime();
	peers[0].owner = 4711;
	say_many(flood, "work\n");
	UNTIL(peers[0].lines >= BUDGET_MOST_US / WORK_US - 1);
	say_text(calm, "one\n");
	turns(20);
	assert_int_equal(peers[1].lines, 1);
	close(flood);
	close(calm);
}

/* One that waits for its turn may be shut, and may close. */
TEST_BETWEEN(ends_in_queue, begin, end)
{
	int floods[3];

	still_ns = uv_hrtime();
	for (uint32_t i = 0; i < 3; i++) {
		floods[i] = dial_peer(1);
		say_many(floods[i], "work\n");
	}
	UNTIL(lines_of(0, 3) >= BUDGET_MOST_US / WORK_US - 1);
	turns(10);
	peers[0].refused = true;
	connections_send(NULL, &peers[0], "no\n");
	connections_shut(NULL, &peers[0]);
	expect_all(floods[0], "hello\nno\n");
	close(floods[1]);
	turns(10);
	close(floods[2]);
}

/* A host that comes again and again takes no more than its share of the time either. */
TEST_BETWEEN(comes_often, begin, end)
{
	int fds[3];

	still_ns = uv_hrtime();
	hello_us = BUDGET_MOST_US;
	for (uint32_t i = 0; i < 3; i++)
		fds[i] = dial(&address, 1);
	UNTIL(peer_count == 1 && sorry == 2);
	expect_all(fds[1], "sorry\n");
	expect_all(fds[2], "sorry\n");
	fds[1] = dial_peer(2);
	assert_int_equal(peer_count, 2);
	say_text(fds[0], "refuse me\n"); /* which is another account */
	expect_all(fds[0], "hello\nno\n");
	close(fds[1]);
}

/* ---- no descriptors ---- */

static void dial_by(const int fds[], uint32_t count)
{
	const struct sockaddr_in to = {.sin_family = AF_INET,
	                               .sin_addr.s_addr = htonl(net_ip_number(&address.ip)),
	                               .sin_port = htons(address.port)};

	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(connect(fds[i], (const struct sockaddr *)&to, sizeof(to)), 0);
		assert_int_equal(fcntl(fds[i], F_SETFL, O_NONBLOCK), 0);
	}
}

/* Whoever comes waits, and the loop does not turn like mad meanwhile. */
TEST_BETWEEN(no_descriptors, begin, end)
{
	int fds[4];
	uint64_t until_ms;
	struct rlimit before;
	uint32_t count = 0;

	for (uint32_t i = 0; i < 4; i++)
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	before = allow_descriptors(0);
	dial_by(fds, 4);
	until_ms = uv_hrtime() / 1000000 + 450;
	while (uv_hrtime() / 1000000 < until_ms) {
		uv_run(&loop, UV_RUN_ONCE);
		count++;
	}
	assert_in_range(count, 2, 20);
	assert_true(peer_count == 0 && sorry == 0);
	setrlimit(RLIMIT_NOFILE, &before);
	UNTIL(peer_count == 4);
	for (uint32_t i = 0; i < 4; i++)
		close(fds[i]);
}

/* Each shortage is said once, however often it shows. */
TEST_BETWEEN(shortages_are_said, begin, end)
{
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct rlimit before = allow_descriptors(0);

	shortages_said = 0;
	dial_by(&fd, 1);
	UNTIL(shortages_said == 1);
	assert_non_null(strstr(shortage, ": Too many open files; raise ulimit -n"));
	still_ns = uv_hrtime();
	for (uint32_t i = 0; i < 3; i++) {
		still_ns += UINT64_C(50000000000);
		turns(1000);
	}
	assert_int_equal(shortages_said, 1);
	still_ns += UINT64_C(70000000000);
	turns(1000);
	assert_int_equal(shortages_said, 2);
	still_ns = 0;
	setrlimit(RLIMIT_NOFILE, &before);
	UNTIL(peer_count == 1);
	close(fd);
}

/* A higher limit helps against no other shortage. */
TEST_BETWEEN(other_shortages, begin, end)
{
	int fd;

	shortages_said = 0;
	accept_errno = ENFILE;
	fd = dial(&address, 1);
	UNTIL(shortages_said == 1);
	accept_errno = 0;
	assert_string_equal(shortage, "cannot accept a connection: Too many open files in system");
	UNTIL(peer_count == 1);
	close(fd);
}

/* One that does not take its last lines gives its descriptor up first. */
TEST_BETWEEN(lingering_gives_way, begin, end)
{
	int first = dial_peer(1), second = dial_peer(1), third;
	struct rlimit before;

	crowded = true;
	while (send_long(&peers[1]) < 2 * LONG_BYTES)
		;
	peers[1].refused = true;
	connections_shut(NULL, &peers[1]);
	before = allow_descriptors(1);
	third = dial(&address, 1);
	UNTIL(peer_count == 3);
	assert_false(peers[0].refused);
	setrlimit(RLIMIT_NOFILE, &before);
	close(first);
	close(second);
	close(third);
}

/* One that has not joined gives its descriptor up. */
TEST_BETWEEN(gives_way, begin, end)
{
	int first = dial_peer(1), second = dial_peer(1), third;
	struct rlimit before;

	crowded = true;
	before = allow_descriptors(1);
	third = dial_peer(1); /* has the last */
	expect_all(first, "hello\ncrowded\n");
	assert_int_equal(sorry, 0);
	setrlimit(RLIMIT_NOFILE, &before);
	say_text(third, "refuse me\n");
	expect_all(third, "hello\nno\n");
	say_text(second, "refuse me\n");
	expect_all(second, "hello\nno\n");
}

/* ---- the port ---- */

TEST_BETWEEN(taken, begin, end)
{
	struct why why;

	assert_int_equal(listener_bind(&address, "cannot listen on TCP", &why), -EADDRINUSE);
	assert_non_null(strstr(why.text, "cannot listen on TCP 127.0.0.1:"));
	assert_non_null(strstr(why.text, strerror(EADDRINUSE)));
}

/* Those that are here go on; nobody else comes in, and the port is free for another. */
TEST_BETWEEN(stop, begin, end)
{
	int fd = dial_peer(1);
	struct connections second = {0};
	struct why why;
	int port;

	listener_stop(&connections.listener);
	listener_stop(&connections.listener);
	turns(5);
	port = listener_bind(&address, "cannot listen on TCP", &why);
	assert_true(port >= 0);
	assert_int_equal(connections_open(&second, &loop, NULL, port, &address, &why), 0);
	say_text(fd, "refuse me\n");
	expect_all(fd, "hello\nno\n");
	connections_end(&second);
	turns(5);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	return unit_run(NULL, NULL);
}
