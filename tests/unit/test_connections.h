/* SPDX-License-Identifier: BSD-3-Clause */
/* test_connections.h - the control connections on a real loop, with a jobs.c that only takes notes */
#ifndef TESTS_UNIT_TEST_CONNECTIONS_H
#define TESTS_UNIT_TEST_CONNECTIONS_H

#include "tests/unit/test_loop.h"

#include "aggregator/connections.h"
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

static inline uint64_t worked_us(void)
{
	struct timespec time;

	assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time), 0);
	return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

/* Of this thread's time. */
static inline void burn(uint64_t us)
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

/* ---- one test ---- */

static inline int begin(void **state)
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

static inline int end(void **state)
{
	connections_end(&connections);
	assert_true(connections_none(&connections));
	loop_end();
	return 0;
}

static inline int dial_peer(uint8_t host)
{
	uint32_t before = peer_count;
	int fd = dial(&address, host);

	UNTIL(peer_count == before + 1);
	return fd;
}

/* The other end closes, after these bytes. */
static inline void expect_all(int fd, const char *text)
{
	char heard[256] = "";
	size_t used = 0;

	UNTIL(hear(fd, heard, sizeof(heard), &used) >= 0);
	assert_string_equal(heard, text);
	close(fd);
}

#endif /* TESTS_UNIT_TEST_CONNECTIONS_H */
