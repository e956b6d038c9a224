// SPDX-License-Identifier: BSD-3-Clause
/* test_connections.c - the control connections on a real loop, with a jobs.c that only takes notes */

#include "tests/unit/test_loop.h"

#include "aggregator/connections.h"
#include "aggregator/log.h"
#include "bitmap/control/tls.h"
#include "tests/unit/unit.h"

#define PEERS 64
#define WORK_US 1000 /* what a line "work" costs */

/* ---- the time, which may stand still ---- */

static uint64_t still_ns; /* 0: it passes */

uint64_t uv_hrtime(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return still_ns != 0 ? still_ns
	                     : (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* ---- the log ---- */

static uint32_t shortages_said;

void log_event(const char *level, const char *name, const struct log_field fields[],
               const char *format, ...)
{
	if (strcmp(name, "no_descriptors") == 0)
		shortages_said++;
}

/* ---- jobs, as connections.c knows them ---- */

struct jobs_peer {
	void *handle;
	struct net_addr from;
	struct net_ip local;
	uint64_t owner; /* 0: its address */
	uint32_t lines;
	char line[128];
	uint32_t awaited; /* times that it has waited for a key */
	bool garbage, gone, refused;
	char reason[128], secured[65];
};

static struct jobs_peer peers[PEERS];
static uint32_t peer_count;
static struct job_keys *first_keys; /* NULL: there are none */
static uint64_t hello_us;           /* what a HELLO costs */
static bool crowded;                /* somebody may be crowded out: the first who is here */
static uint32_t sorry;              /* how often there was no room */
static struct connections connections;
static struct net_addr address;

void *jobs_peer_handle(const struct jobs_peer *peer)
{
	return peer->handle;
}

uint64_t jobs_peer_owner(const struct jobs_peer *peer)
{
	return peer->owner != 0 ? peer->owner : net_ip_owner(&peer->from.ip);
}

static uint64_t worked_us(void)
{
	struct timespec time;

	assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time), 0);
	return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

/* Of this thread's time. */
static void burn(uint64_t us)
{
	const uint64_t until_us = worked_us() + us;

	while (us > 0 && worked_us() < until_us)
		;
}

struct jobs_peer *jobs_connected(struct jobs *jobs, const struct net_addr *from,
                                 const struct net_ip *local, void *handle, uint64_t now_us)
{
	struct jobs_peer *peer = &peers[peer_count++];
	assert_true(now_us > 0 && peer_count <= PEERS);
	burn(hello_us);
	*peer = (struct jobs_peer){.handle = handle, .from = *from, .local = *local};
	if (first_keys == NULL)
		connections_send(NULL, peer, "hello\n");
	return peer;
}

void jobs_line(struct jobs *jobs, struct jobs_peer *peer, const char *line, uint64_t now_us)
{
	unsigned number;
	assert_true(now_us > 0 && !peer->refused);
	if (sscanf(line, "number %u", &number) == 1) /* each in its order, and none twice */
		assert_int_equal(number, peer->lines);
	peer->lines++;
	snprintf(peer->line, sizeof(peer->line), "%s", line);
	if (strcmp(line, "work") == 0)
		burn(WORK_US);
	if (strcmp(line, "refuse me") == 0) {
		peer->refused = true;
		connections_send(NULL, peer, "no\n");
		connections_shut(NULL, peer);
	}
}

void jobs_awaits_key(struct jobs_peer *peer, uint64_t now_us)
{
	assert_true(now_us > 0);
	peer->awaited++;
}

void jobs_secured(struct jobs *jobs, struct jobs_peer *peer, const char *name, uint64_t owner)
{
	assert_true(*peer->secured == '\0');
	snprintf(peer->secured, sizeof(peer->secured), "%s", name);
	peer->owner = owner;
	connections_send(NULL, peer, "hello\n");
}

void jobs_refuse(struct jobs *jobs, struct jobs_peer *peer, const char *code, const char *text)
{
	char line[128];

	assert_true(!peer->gone && !peer->refused && strlen(text) > 10);
	peer->refused = true;
	snprintf(peer->reason, sizeof(peer->reason), "%s", code);
	snprintf(line, sizeof(line), "%s\n", code);
	connections_send(NULL, peer, line);
	connections_shut(NULL, peer);
}

void jobs_garbage(struct jobs *jobs, struct jobs_peer *peer, const char *why)
{
	peer->garbage = true;
	connections_shut(NULL, peer);
}

/* As jobs.c does, it closes the peer in turn. */
void jobs_gone(struct jobs *jobs, struct jobs_peer *peer, const char *reason)
{
	assert_false(peer->gone || peer->refused || peer->garbage);
	peer->gone = true;
	snprintf(peer->reason, sizeof(peer->reason), "%s", reason);
	connections_shut(NULL, peer);
}

bool jobs_crowd_out(struct jobs *jobs)
{
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

char *jobs_turn_away(struct jobs *jobs)
{
	sorry++;
	return strdup("sorry\n");
}

/* ---- */

static int begin(void **state)
{
	struct why why;
	int fd;
	peer_count = sorry = 0;
	crowded = false;
	hello_us = still_ns = 0;
	connections = (struct connections){.keys = first_keys};
	address = free_address();
	assert_int_equal(uv_loop_init(&loop), 0);
	fd = listener_bind(&address, "cannot listen on TCP", &why);
	if (fd < 0 || connections_open(&connections, &loop, NULL, fd, &address, &why) != 0)
		fail_msg("%s", why.text);
	return 0;
}

static int end(void **state)
{
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

/* ---- TLS ---- */

#define KEY "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct tls_context *clients;
static struct job_keys *keys;

static int begin_with(const char *text)
{
	struct why why;

	assert_int_equal(job_keys_load(NULL, text, &keys, &why), 0);
	assert_int_equal(tls_context_open(NULL, &clients), 0);
	first_keys = keys;
	return begin(NULL);
}

static int begin_keyed(void **state)
{
	return begin_with(KEY);
}

static int end_keyed(void **state)
{
	end(state);
	tls_context_close(clients);
	job_keys_free(keys);
	first_keys = NULL;
	return 0;
}

struct client {
	int fd;
	struct tls *tls;
	char said[512]; /* by the aggregator */
	ssize_t result; /* of the last tls_read() */
};

static struct client client_dial(const char *job, const char *key_text)
{
	struct client client = {.fd = dial_peer(1)};
	struct job_key key;

	assert_int_equal(job_key_from_text(key_text, &key), 0);
	assert_int_equal(tls_connect(clients, job, key.bytes, &client.tls), 0);
	return client;
}

/* Carries `piece` bytes at most each way. */
static void client_turn(struct client *client, size_t piece)
{
	char bytes[4096];
	size_t used = strlen(client->said), count = tls_pull(client->tls, bytes, piece);
	ssize_t got;

	assert_true(count == 0 || send(client->fd, bytes, count, MSG_NOSIGNAL) == (ssize_t)count);
	got = recv(client->fd, bytes, piece, MSG_DONTWAIT);
	if (got > 0)
		assert_int_equal(tls_feed(client->tls, bytes, (size_t)got), 0);
	client->result =
		tls_read(client->tls, client->said + used, sizeof(client->said) - 1 - used);
	client->said[client->result > 0 ? used + (size_t)client->result : used] = '\0';
}

static bool client_hears(struct client *client, size_t piece, const char *text)
{
	client_turn(client, piece);
	return strcmp(client->said, text) == 0;
}

static void client_say(struct client *client, const char *text)
{
	assert_int_equal(tls_write(client->tls, text, strlen(text)), 0);
}

static void client_close(struct client *client)
{
	close(client->fd);
	tls_close(client->tls);
}

/* Lines as ever, in pieces of any size; both ends have one key for a name. */
TEST_BETWEEN(secured, begin_keyed, end_keyed)
{
	for (size_t piece = 1; piece <= 4096; piece = piece * 63 + 1) {
		struct jobs_peer *peer = &peers[peer_count];
		struct client client = client_dial("job/1", KEY);
		struct seal_key ours, theirs;

		UNTIL(client_hears(&client, piece, "hello\n"));
		assert_string_equal(peer->secured, "job");
		assert_true(peer->owner != 0);
		assert_int_equal(connections_seal_key(peer, "job/1", &ours), 0);
		assert_int_equal(tls_seal_key(client.tls, "job/1", &theirs), 0);
		assert_memory_equal(&ours, &theirs, sizeof(ours));
		client_say(&client, "number 0\nnumber 1\nrefuse me\n");
		UNTIL(client_hears(&client, piece, "hello\nno\n"));
		assert_int_equal(peer->lines, 3);
		client_close(&client);
	}
	UNTIL(connections_none(&connections));
}

/* Who begins without TLS is told why, in plain text; who has no key, by an alert. */
TEST_BETWEEN(unsecured, begin_keyed, end_keyed)
{
	struct client client;
	int fd = dial_peer(1);

	say_text(fd, "{");
	expect_all(fd, "key\n");
	fd = dial_peer(1);
	say_text(fd, "GET / HTTP/1.1\r\n");
	expect_all(fd, "protocol\n");
	client = client_dial("job", KEY "e");
	UNTIL((client_turn(&client, 4096), client.result < 0));
	assert_int_equal(client.result, -EPROTO);
	assert_string_equal(peers[2].reason, "key");
	client_close(&client);
	fd = dial_peer(1); /* it is told at once, as long as it has said nothing */
	connections_send(NULL, &peers[3], "crowded\n");
	connections_shut(NULL, &peers[3]);
	expect_all(fd, "crowded\n");
	assert_int_equal(peers[0].lines + peers[1].lines + peers[2].lines + peers[3].lines, 0);
	UNTIL(connections_none(&connections));
}

/* Garbage inside TLS, a record with another bit, and the end in the midst of a handshake. */
TEST_BETWEEN(broken, begin_keyed, end_keyed)
{
	struct client client = client_dial("job", KEY);
	char bytes[256];
	size_t count;
	int fd;

	UNTIL(client_hears(&client, 4096, "hello\n"));
	client_say(&client, "abort\n");
	count = tls_pull(client.tls, bytes, sizeof(bytes));
	bytes[count - 1] ^= 1;
	assert_int_equal(send(client.fd, bytes, count, MSG_NOSIGNAL), count);
	UNTIL(peers[0].garbage);
	assert_int_equal(peers[0].lines, 0);
	client_close(&client);
	fd = dial_peer(1);
	assert_int_equal(send(fd, "\x16\x03\x01\xff\xff garbage", 14, MSG_NOSIGNAL), 14);
	UNTIL(peers[1].refused);
	assert_string_equal(peers[1].reason, "key");
	close(fd);
	client = client_dial("job", KEY);
	count = tls_pull(client.tls, bytes, 100);
	assert_int_equal(send(client.fd, bytes, count, MSG_NOSIGNAL), count);
	turns(10);
	client_close(&client);
	UNTIL(peers[2].gone);
	UNTIL(connections_none(&connections));
}

static int begin_aside(void **state)
{
	return begin_with("a-passphrase");
}

/* A handshake whose key is being made waits, and nobody else does. */
TEST_BETWEEN(awaits_key, begin_aside, end_keyed)
{
	struct client client = client_dial("job", "a-passphrase");

	UNTIL((client_turn(&client, 4096), peers[0].awaited > 0));
	connections_keys_made(&connections, keys); /* but not this one */
	for (int i = 0; i < 20; i++) {
		turns(1);
		client_turn(&client, 4096);
	}
	assert_true(peers[0].awaited == 2 && client.said[0] == '\0');
	dial_peer(1);
	peers[1].refused = true;
	connections_shut(NULL, &peers[1]);
	assert_int_equal(job_keys_stretch(keys, NULL), 1);
	connections_keys_made(&connections, keys);
	UNTIL(client_hears(&client, 4096, "hello\n"));
	assert_int_equal(peers[0].awaited, 2);
	client_close(&client);
	UNTIL(peers[0].gone);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	return unit_run(NULL, NULL);
}
