// SPDX-License-Identifier: BSD-3-Clause
/* test_connections.c - the control connections on a real loop, with a jobs.c that only takes notes */

#include "tests/unit/test_loop.h"

#include "aggregator/connections.h"

#define PEERS 64

/* ---- jobs, as connections.c knows them ---- */

struct jobs_peer {
	void *handle;
	struct net_addr from;
	struct net_ip local;
	uint32_t lines;
	char line[128];
	bool garbage, gone, refused;
	char reason[128];
};

static struct jobs_peer peers[PEERS];
static uint32_t peer_count;
static bool crowded;   /* somebody may be crowded out: the first who is here */
static uint32_t sorry; /* how often there was no room */
static struct connections connections;
static struct net_addr address;

void *jobs_peer_handle(const struct jobs_peer *peer)
{
	return peer->handle;
}

struct jobs_peer *jobs_connected(struct jobs *jobs, const struct net_addr *from,
                                 const struct net_ip *local, void *handle, uint64_t now_us)
{
	struct jobs_peer *peer = &peers[peer_count++];

	(void)jobs;
	assert_true(now_us > 0 && peer_count <= PEERS);
	*peer = (struct jobs_peer){.handle = handle, .from = *from, .local = *local};
	connections_send(NULL, peer, "hello\n");
	return peer;
}

void jobs_line(struct jobs *jobs, struct jobs_peer *peer, const char *line, uint64_t now_us)
{
	(void)jobs;
	assert_true(now_us > 0 && !peer->refused);
	peer->lines++;
	snprintf(peer->line, sizeof(peer->line), "%s", line);
	if (strcmp(line, "refuse me") == 0) {
		peer->refused = true;
		connections_send(NULL, peer, "no\n");
		connections_shut(NULL, peer);
	}
}

void jobs_garbage(struct jobs *jobs, struct jobs_peer *peer, const char *why)
{
	(void)jobs;
	(void)why;
	peer->garbage = true;
	connections_shut(NULL, peer);
}

/* As jobs.c does, it closes the peer in turn. */
void jobs_gone(struct jobs *jobs, struct jobs_peer *peer, const char *reason)
{
	(void)jobs;
	assert_false(peer->gone || peer->refused || peer->garbage);
	peer->gone = true;
	snprintf(peer->reason, sizeof(peer->reason), "%s", reason);
	connections_shut(NULL, peer);
}

bool jobs_crowd_out(struct jobs *jobs)
{
	(void)jobs;
	for (uint32_t i = 0; crowded && i < peer_count; i++) {
		if (peers[i].gone || peers[i].refused)
			continue;
		peers[i].refused = true;
		connections_send(NULL, &peers[i], "crowded\n");
		connections_shut(NULL, &peers[i]);
		return true;
	}
	return false;
}

char *jobs_no_room(struct jobs *jobs)
{
	(void)jobs;
	sorry++;
	return strdup("sorry\n");
}

/* ---- */

static int begin(void **state)
{
	struct why why;
	int fd;

	(void)state;
	peer_count = sorry = 0;
	crowded = false;
	connections = (struct connections){0};
	address = free_address();
	assert_int_equal(uv_loop_init(&loop), 0);
	fd = listener_bind(&address, "cannot listen on TCP", &why);
	if (fd < 0 || connections_open(&connections, &loop, NULL, fd, &address, &why) != 0)
		fail_msg("%s", why.text);
	return 0;
}

static int end(void **state)
{
	(void)state;
	connections_end(&connections);
	assert_true(connections_none(&connections));
	loop_end();
	return 0;
}

static int dial_peer(uint8_t host)
{
	uint32_t before = peer_count;
	int fd = dial(&address, host);

	UNTIL(peer_count == before + 1);
	return fd;
}

/* The other end closes, after these bytes. */
static void expect_all(int fd, const char *text)
{
	char heard[256] = "";
	size_t used = 0;

	UNTIL(hear(fd, heard, sizeof(heard), &used) >= 0);
	assert_string_equal(heard, text);
	close(fd);
}

static void test_lines(void **state)
{
	int fd = dial_peer(9);
	char text[16];
	size_t used = 0;

	(void)state;
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
static void test_last_line(void **state)
{
	int fd = dial_peer(1), other = dial_peer(1);

	(void)state;
	say_text(fd, "first\nrefuse me\nand more\n");
	expect_all(fd, "hello\nno\n");
	assert_int_equal(peers[0].lines, 2);
	assert_false(peers[0].gone);
	say_text(other, "still here\n");
	UNTIL(peers[1].lines == 1);
	close(other);
	UNTIL(connections_none(&connections));
}

static void test_garbage(void **state)
{
	char text[9000];
	int fd = dial_peer(1);

	(void)state;
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

/* Lines of 8 KB to a peer that does not read: until the kernel takes no more, then up to our limit, and no further. */
static void test_does_not_read(void **state)
{
	int deaf = dial_peer(1), other = dial_peer(1);
	static char line[8192];
	size_t queued = 0, most = 0;

	(void)state;
	memset(line, 'x', sizeof(line) - 2);
	line[sizeof(line) - 2] = '\n';
	for (uint32_t i = 0; i < 4000; i++) { /* 32 MB */
		connections_send(NULL, &peers[0], line);
		queued = 0;
		uv_walk(&loop, count_queued, &queued);
		most = queued > most ? queued : most;
		assert_false(peers[0].gone); /* not before the call has returned */
	}
	assert_in_range(most, CONNECTIONS_QUEUE_BYTES - sizeof(line), CONNECTIONS_QUEUE_BYTES);
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
static void test_linger(void **state)
{
	int fd = dial_peer(1);
	static char line[8192];
	uint64_t shut_us;
	size_t queued;

	(void)state;
	memset(line, 'x', sizeof(line) - 2);
	line[sizeof(line) - 2] = '\n';
	do {
		connections_send(NULL, &peers[0], line);
		queued = 0;
		uv_walk(&loop, count_queued, &queued);
	} while (queued < 2 * sizeof(line));
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

/* Whoever comes is told so. */
static void test_no_descriptors(void **state)
{
	int first = dial_peer(1), fds[4];
	struct rlimit before;

	(void)state;
	for (uint32_t i = 0; i < 4; i++)
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	before = allow_descriptors(0);
	dial_by(fds, 4);
	UNTIL(sorry == 4);
	for (uint32_t i = 0; i < 4; i++)
		expect_all(fds[i], "sorry\n");
	assert_int_equal(peer_count, 1);
	setrlimit(RLIMIT_NOFILE, &before);
	say_text(first, "refuse me\n");
	expect_all(first, "hello\nno\n");
}

/* Not even the reserve is left: they wait, and the loop does not turn like mad meanwhile. */
static void test_no_reserve(void **state)
{
	int fds[4];
	uint64_t until_ms;
	struct rlimit before;
	uint32_t count = 0;

	(void)state;
	for (uint32_t i = 0; i < 4; i++)
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	close(connections.listener.reserve);
	connections.listener.reserve = -1;
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
	assert_true(connections.listener.reserve >= 0);
	for (uint32_t i = 0; i < 4; i++)
		close(fds[i]);
}

/* One that does not take its last lines gives its descriptor up first. */
static void test_lingering_gives_way(void **state)
{
	int first = dial_peer(1), second = dial_peer(1), third;
	static char line[8192];
	struct rlimit before;
	size_t queued = 0;

	(void)state;
	crowded = true;
	memset(line, 'x', sizeof(line) - 2);
	line[sizeof(line) - 2] = '\n';
	while (queued < 2 * sizeof(line)) {
		connections_send(NULL, &peers[1], line);
		queued = 0;
		uv_walk(&loop, count_queued, &queued);
	}
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
static void test_gives_way(void **state)
{
	int first = dial_peer(1), second = dial_peer(1), third;
	struct rlimit before;

	(void)state;
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

static void test_taken(void **state)
{
	struct why why;

	(void)state;
	assert_int_equal(listener_bind(&address, "cannot listen on TCP", &why), -EADDRINUSE);
	assert_non_null(strstr(why.text, "cannot listen on TCP 127.0.0.1:"));
	assert_non_null(strstr(why.text, strerror(EADDRINUSE)));
}

/* Those that are here go on; nobody else comes in, and the port is free for another. */
static void test_stop(void **state)
{
	int fd = dial_peer(1);
	struct connections second = {0};
	struct why why;
	int port;

	(void)state;
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
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_lines, begin, end),
		cmocka_unit_test_setup_teardown(test_last_line, begin, end),
		cmocka_unit_test_setup_teardown(test_garbage, begin, end),
		cmocka_unit_test_setup_teardown(test_does_not_read, begin, end),
		cmocka_unit_test_setup_teardown(test_linger, begin, end),
		cmocka_unit_test_setup_teardown(test_no_descriptors, begin, end),
		cmocka_unit_test_setup_teardown(test_no_reserve, begin, end),
		cmocka_unit_test_setup_teardown(test_lingering_gives_way, begin, end),
		cmocka_unit_test_setup_teardown(test_gives_way, begin, end),
		cmocka_unit_test_setup_teardown(test_taken, begin, end),
		cmocka_unit_test_setup_teardown(test_stop, begin, end),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
